"""Cluster metadata: topics, partitions and their leaders."""
