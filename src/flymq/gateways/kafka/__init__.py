"""Kafka's clients, unchanged: their requests become calls of the broker, its answers their responses."""
