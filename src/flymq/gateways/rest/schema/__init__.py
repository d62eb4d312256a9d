"""The API: its operations, their shapes, and the OpenAPI document generated from both."""
