"""The leader's side of copying: one session for each follower, in which only changes are sent.

A follower names the partitions that it copies once, and afterwards only those whose position has changed, which are
those it has just received. An append marks its partition as ready in the sessions of its followers, so a fetch looks
only at partitions that have something new: its cost does not grow with the number of partitions followed.

With the positions of a follower the leader moves the high watermark. That alone does not complete a fetch that waits,
else every record would cost two responses; a follower learns it with the next records, or when its fetch times out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from flymq.broker.replicas.partition import Partition, Slice
from flymq.host.clock import Clock
from flymq.model.errors import FlyMQError, OffsetOutOfRange
from flymq.model.names import TopicPartition

NO_EPOCH = -1


class Position(NamedTuple):
    """How far a follower has come in a partition."""

    leader_epoch: int
    """The epoch of the leader that it follows."""
    offset: int
    """It has everything before this offset."""
    last_epoch: int
    """The leader epoch of its last record; -1 if it has none."""
    durable_offset: int
    """It has everything before this offset on its disk."""


@dataclass(slots=True)
class ReplicaRead:
    """News of one partition for a follower."""

    name: TopicPartition
    slice: Slice | None = None
    high_watermark: int = -1
    start_offset: int = -1
    diverging: tuple[int, int] | None = None
    """(leader epoch, its end offset): the follower has other records after this. It has to truncate."""
    error: FlyMQError | None = None


@dataclass(slots=True)
class _Followed:
    partition: Partition
    position: Position
    wake: Callable[[], None]
    told_high_watermark: int = -1
    has_failed: bool = False
    """It was told an error or a divergence, and nothing more until it sends another position."""


class ReplicaSession:
    """The partitions that one follower copies from this broker."""

    def __init__(
        self, broker: int, broker_epoch: int, find: Callable[[TopicPartition], Partition], clock: Clock
    ) -> None:
        self.broker = broker
        self.broker_epoch = broker_epoch
        self._find = find
        self._clock = clock
        self._followed: dict[TopicPartition, _Followed] = {}
        self._ready: dict[TopicPartition, None] = {}  # in the order in which they are served
        self._failed: dict[TopicPartition, ReplicaRead] = {}
        self._has_news = asyncio.Event()

    def change(self, positions: Iterable[tuple[TopicPartition, Position]], forgotten: Iterable[TopicPartition]) -> None:
        """Take in where the follower is now, and which partitions it does not copy any more."""
        for name in forgotten:
            self._forget(name)
        now_s = self._clock.monotonic_s()
        for name, position in positions:
            try:
                self._move(name, position, now_s)
            except FlyMQError as error:
                self._forget(name)
                self._failed[name] = ReplicaRead(name, error=error)

    def _move(self, name: TopicPartition, position: Position, now_s: float) -> None:
        partition = self._find(name)
        partition.check_leads(position.leader_epoch)
        followed = self._followed.get(name)
        if followed is None or followed.partition is not partition:
            self._forget(name)
            followed = _Followed(partition, position, partial(self._woken, name))
            self._followed[name] = followed
        followed.position = position
        followed.has_failed = False
        if (failed := _refusal(partition, position)) is not None:
            followed.has_failed = True
            self._failed[name] = failed
            return
        self._failed.pop(name, None)
        if partition.replication is not None:
            partition.replication.fetched(
                self.broker, self.broker_epoch, position.offset, position.durable_offset, now_s
            )
        partition.wait(followed.wake)
        if partition.log.end_offset > position.offset or partition.high_watermark != followed.told_high_watermark:
            self._ready[name] = None
        else:
            self._ready.pop(name, None)

    def _forget(self, name: TopicPartition) -> None:
        followed = self._followed.pop(name, None)
        if followed is not None:
            followed.partition.stop_waiting(followed.wake)
        self._ready.pop(name, None)
        self._failed.pop(name, None)

    def _woken(self, name: TopicPartition) -> None:
        """Something was appended, the high watermark has moved, or another broker leads."""
        followed = self._followed[name]
        if followed.has_failed:
            return
        partition, position = followed.partition, followed.position
        try:
            partition.check_leads(position.leader_epoch)
        except FlyMQError as error:
            self._forget(name)
            self._failed[name] = ReplicaRead(name, error=error)
            self._has_news.set()
            return
        self._ready[name] = None
        if partition.log.end_offset > position.offset:
            self._has_news.set()
        else:
            partition.wait(followed.wake)

    # --- read

    async def fetch(self, *, bytes_max: int, wait_s: float) -> list[ReplicaRead]:
        """Return the news; wait for records if there are none."""
        reads = self._read(bytes_max)
        if any(read.high_watermark < 0 or read.slice is not None for read in reads):
            return reads
        self._has_news.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._has_news.wait()
        except TimeoutError:
            pass
        return self._read(bytes_max, told=reads)

    def _read(self, bytes_max: int, told: Iterable[ReplicaRead] = ()) -> list[ReplicaRead]:
        """Read the partitions that are ready, in turns: one that was served goes to the end."""
        reads = {read.name: read for read in told}
        reads |= self._failed
        self._failed = {}
        for name in list(self._ready):
            if bytes_max <= 0:
                break
            followed = self._followed[name]
            read = self._read_one(followed, bytes_max)
            del self._ready[name]
            if read.error is not None:
                followed.has_failed = True
            elif read.slice is not None:
                bytes_max -= read.slice.length
                self._ready[name] = None  # until the follower says how far it is
                followed.told_high_watermark = read.high_watermark
            elif read.high_watermark == followed.told_high_watermark and name not in reads:
                continue
            else:
                followed.told_high_watermark = read.high_watermark
            reads[name] = read
        return list(reads.values())

    def _read_one(self, followed: _Followed, bytes_max: int) -> ReplicaRead:
        partition, position = followed.partition, followed.position
        try:
            found = partition.read_for_replica(position.offset, bytes_max=bytes_max)
        except FlyMQError as error:
            return ReplicaRead(partition.name, start_offset=partition.start_offset, error=error)
        return ReplicaRead(partition.name, found, partition.high_watermark, partition.start_offset)

    def close(self) -> None:
        """The follower is gone."""
        for name in list(self._followed):
            self._forget(name)


def _refusal(partition: Partition, position: Position) -> ReplicaRead | None:
    """Return what a follower is told that cannot go on from its position."""
    name, start_offset = partition.name, partition.start_offset
    if position.offset < start_offset:
        error = OffsetOutOfRange(f"{name} starts at offset {start_offset}, not {position.offset}")
        return ReplicaRead(name, start_offset=start_offset, error=error)
    diverging = _divergence(partition, position)
    return None if diverging is None else ReplicaRead(name, diverging=diverging)


def _divergence(partition: Partition, position: Position) -> tuple[int, int] | None:
    """Return up to where the follower may have the same records, if it has others after that."""
    end_offset = partition.log.end_offset
    if position.last_epoch == NO_EPOCH:
        return None if position.offset <= end_offset else (NO_EPOCH, end_offset)
    found = partition.end_of_epoch(position.last_epoch)
    if found is None:
        return NO_EPOCH, partition.start_offset
    epoch, epoch_end = found
    return None if epoch == position.last_epoch and epoch_end >= position.offset else (epoch, epoch_end)
