"""What the API is: its operations, their shapes, and the OpenAPI page made from both."""
