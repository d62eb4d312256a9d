"""The Kafka protocol without I/O: requests out of bytes, responses into them."""
