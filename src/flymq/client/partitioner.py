"""Which partition a record goes to when the caller does not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flymq.model.errors import PartitionNotFound
from flymq.record.codec import murmur2
from flymq.record.partitioning import partition_for_key

Partitioner = Callable[[str, bytes | None, bytes | None, int], int | None]
"""Takes topic, key, value and the number of partitions; returns a partition, or None to let the producer choose."""

ANY = None


def by_key(topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
    """The default: hash the key, so that records of one key stay in order; without a key, round robin by batch."""
    return ANY if key is None else partition_for_key(key, partition_count)


def partitions_for_keys(keys: Sequence[bytes | None], partition_count: int) -> list[int | None]:
    """Return the result of `by_key` for each key: the same rule inlined, since a call per key would double the cost."""
    return [ANY if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_count for key in keys]


def check_partition(topic: str, partition: int, partition_count: int) -> int:
    """Return `partition`; raise if the topic does not have it."""
    if not 0 <= partition < partition_count:
        raise PartitionNotFound(f"topic {topic!r} has the partitions 0 to {partition_count - 1}, not {partition}")
    return partition
