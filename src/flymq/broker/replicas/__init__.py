"""The replicas on this broker: write, read, long poll and maintenance."""
