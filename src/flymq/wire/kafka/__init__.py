"""The Kafka protocol without I/O: decode requests, encode responses."""
