"""The topics in which the coordinators keep what they decide: compacted, written by the broker alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from flymq.broker.admin import Admin
from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replicas import Topic
from flymq.coordination.entries import Entry, encode_entries, parse_entries
from flymq.host.clock import Clock
from flymq.model.delivery import Acks
from flymq.record.partitioning import partition_for_key
from flymq.record.reading import end_offset

OFFSETS = "__offsets"
TRANSACTIONS = "__transactions"

_SETTINGS: dict[str, Any] = {
    "cleanup.policy": "compact",
    "persistence": "disk",
    "message.timestamp.type": "create",
    "retention.ms": -1,
    "retention.bytes": -1,
    # Small segments, since the newest one is never compacted and a start reads all of it.
    "segment.bytes": 4 << 20,
    "max.message.bytes": 16 << 20,
}
_READ_BYTES = 1 << 20


class InternalTopic:
    """Entries in, entries out."""

    def __init__(self, topic: Topic, clock: Clock) -> None:
        self._partitions = topic.partitions
        self._clock = clock

    @staticmethod
    async def open(admin: Admin, name: str, clock: Clock, *, partitions: int) -> InternalTopic:
        """Open the topic, or create it with so many partitions: for good, since they are found by a hash.

        Each is a file to sync, so few of them make a single broker quick, and many spread over a large cluster.
        """
        return InternalTopic(await admin.get_or_create_internal(name, partitions=partitions, settings=_SETTINGS), clock)

    def __len__(self) -> int:
        return len(self._partitions)

    def leader_epoch(self, number: int) -> int:
        """Return how often this partition has changed hands: the epoch of its coordinator."""
        return self._partitions[number].leader_epoch

    def number_of(self, key: str) -> int:
        """Return which partition this group or transactional id lives in."""
        return partition_for_key(key.encode(), len(self._partitions))

    def partition(self, number: int) -> Partition:
        return self._partitions[number]

    def replay(self, number: int) -> Iterator[Entry]:
        """Yield everything the partition holds, oldest first."""
        log = self._partitions[number].log
        offset = log.start_offset
        while (found := log.read(offset, bytes_max=_READ_BYTES)) is not None:
            run = found.read()
            yield from parse_entries(run)
            following = end_offset(run)
            assert following is not None
            offset = following

    def write(self, number: int, entries: Sequence[Entry]) -> asyncio.Future[None] | None:
        """Append entries, all or none. They count from now on; the future is done when they are on the disk."""
        batch = encode_entries(entries, now_ms=self._clock.now_ms())
        return self._partitions[number].append(batch, Acks.ALL)[1]
