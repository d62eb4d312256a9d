"""What the brokers agree on: topics, partitions and their leaders."""
