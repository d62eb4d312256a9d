"""What the brokers agree on (topics, partitions, settings), behind one small interface."""
