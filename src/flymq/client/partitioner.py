"""Which partition a record goes to when the caller does not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flymq.model.errors import PartitionNotFound
from flymq.record.codec import murmur2
from flymq.record.partitioning import partition_for_key

Partitioner = Callable[[str, bytes | None, bytes | None, int], int | None]
"""Takes topic, key, value and the number of partitions; returns a partition, or None for "any will do"."""

ANY = None


def by_key(topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
    """The default: records of one key stay together, in order; those without a key go round robin, batch by batch."""
    return ANY if key is None else partition_for_key(key, partition_count)


def partitions_for_keys(keys: Sequence[bytes | None], partition_count: int) -> list[int | None]:
    """Return what `by_key` would for each: the same rule written out, since a call for each key costs as much again."""
    return [ANY if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_count for key in keys]


def check_partition(topic: str, partition: int, partition_count: int) -> int:
    """Return `partition`, or say that the topic does not have it."""
    if not 0 <= partition < partition_count:
        raise PartitionNotFound(f"topic {topic!r} has the partitions 0 to {partition_count - 1}, not {partition}")
    return partition
