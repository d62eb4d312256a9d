"""The Kafka gateway, for unmodified Kafka clients."""
