"""What a partition remembers of its producers and transactions. All of it is replayed from the batches."""
