"""The partition of a key: Kafka's default partitioner, so that all clients agree."""

from __future__ import annotations

from flymq.record.codec import murmur2


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of all records with this key, as long as the topic has this many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
