"""Groups and transactions, each run on the partitions of an internal topic."""
