"""The broker itself: topics and partitions, and the front door to them."""
