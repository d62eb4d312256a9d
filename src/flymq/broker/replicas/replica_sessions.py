"""The leader's side of copying: one session for each follower, in which only changes are sent.

A follower names the partitions that it copies once, and afterwards only those whose position has changed, which are
those it has just received. An append marks its partition as ready in the sessions of its followers, so a fetch looks
only at partitions that have something new: its cost does not grow with the number of partitions followed.

Partitions are named by the id of their topic: records of a topic that was deleted never reach one that was created
again with its name.

With the positions of a follower the leader moves the high watermark. That alone does not complete a fetch that waits,
else every record would cost two responses; a follower learns it with the next records, or when its fetch times out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from flymq.broker.replicas.partition import Partition, Slice
from flymq.host.clock import Clock
from flymq.host.prompt_future import PromptFuture
from flymq.model.errors import FlyMQError, NotLeader, OffsetOutOfRange

NO_EPOCH = -1

_READS_MAX = 1_000
"""In one answer, so that others are served in between."""

ReplicaId = tuple[bytes, int]
"""Topic id and number of a partition."""


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

    replica: ReplicaId
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
    is_answered: bool = False
    """It was sent records, an error or a divergence, and nothing more until it sends its position."""


@dataclass(slots=True)
class _WaitingFetch:
    future: PromptFuture[list[ReplicaRead]]
    bytes_max: int
    told: list[ReplicaRead]
    until_s: float
    is_due: bool = False


class ReplicaSession:
    """The partitions that one follower copies from this broker."""

    def __init__(self, broker: int, broker_epoch: int, find: Callable[[ReplicaId], Partition], clock: Clock) -> None:
        self.broker = broker
        self.broker_epoch = broker_epoch
        self._find = find
        self._clock = clock
        self._followed: dict[ReplicaId, _Followed] = {}
        self._ready: dict[ReplicaId, None] = {}  # in the order in which they are served
        self._failed: dict[ReplicaId, ReplicaRead] = {}
        self._waiting: _WaitingFetch | None = None
        self._timer: asyncio.TimerHandle | None = None  # one for all fetches, not one for each: most do not wait long

    def change(self, positions: Iterable[tuple[ReplicaId, Position]], forgotten: Iterable[ReplicaId]) -> None:
        """Take in where the follower is now, and which partitions it does not copy any more."""
        for replica in forgotten:
            self._forget(replica)
        now_s = self._clock.monotonic_s()
        for replica, position in positions:
            try:
                self._move(replica, position, now_s)
            except FlyMQError as error:
                self._forget(replica)
                self._failed[replica] = ReplicaRead(replica, error=error)

    def _move(self, replica: ReplicaId, position: Position, now_s: float) -> None:
        partition = self._find(replica)
        partition.check_leads(position.leader_epoch)
        replication = partition.replication
        if replication is None or replication.followers.of(self.broker) is None:
            # The metadata here is behind. The follower sends its position again: it would not if it were just dropped.
            raise NotLeader(f"broker {self.broker} has no replica of {partition.name}, as far as its leader knows")
        followed = self._followed.get(replica)
        if followed is None or followed.partition is not partition:
            self._forget(replica)
            followed = _Followed(partition, position, partial(self._woken, replica))
            self._followed[replica] = followed
        followed.position = position
        followed.is_answered = False
        if (failed := _refusal(replica, partition, position)) is not None:
            followed.is_answered = True
            self._failed[replica] = failed
            return
        self._failed.pop(replica, None)
        replication.fetched(self.broker, self.broker_epoch, position.offset, position.durable_offset, now_s)
        partition.wait(followed.wake)
        if partition.log.end_offset > position.offset or partition.high_watermark != followed.told_high_watermark:
            self._ready[replica] = None
        else:
            self._ready.pop(replica, None)

    def _forget(self, replica: ReplicaId) -> None:
        followed = self._followed.pop(replica, None)
        if followed is not None:
            followed.partition.stop_waiting(followed.wake)
        self._ready.pop(replica, None)
        self._failed.pop(replica, None)

    def _woken(self, replica: ReplicaId) -> None:
        """Something was appended, the high watermark has moved, or another broker leads."""
        followed = self._followed[replica]
        if followed.is_answered:
            return
        partition, position = followed.partition, followed.position
        try:
            partition.check_leads(position.leader_epoch)
        except FlyMQError as error:
            self._forget(replica)
            self._failed[replica] = ReplicaRead(replica, error=error)
            self._has_news()
            return
        self._ready[replica] = None
        if partition.log.end_offset > position.offset:
            self._has_news()
        else:
            partition.wait(followed.wake)

    # --- read

    def fetch(self, *, bytes_max: int, wait_s: float) -> list[ReplicaRead] | PromptFuture[list[ReplicaRead]]:
        """Return the news, or a future of them if there are no records yet. An older fetch that waits is completed."""
        if (older := self._waiting) is not None:
            self._waiting = None
            older.future.set_result(older.told)
        reads = self._read(bytes_max)
        if any(read.high_watermark < 0 or read.slice is not None for read in reads):
            return reads
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        self._waiting = _WaitingFetch(PromptFuture(), bytes_max, reads, until_s)
        if self._timer is None or until_s < self._timer.when():
            self._set_timer(until_s)
        return self._waiting.future

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at_s, self._timed_out)

    def _timed_out(self) -> None:
        """Complete the fetch that has waited long enough. The timer may be that of an older one."""
        timer, self._timer = self._timer, None
        waiting = self._waiting
        assert timer is not None
        if waiting is None:
            return
        if waiting.until_s > timer.when():
            self._set_timer(waiting.until_s)
        else:
            self._complete(waiting)

    def _has_news(self) -> None:
        """Complete the fetch that waits, after everything that is appended in this turn of the loop."""
        waiting = self._waiting
        if waiting is not None and not waiting.is_due:
            waiting.is_due = True
            asyncio.get_running_loop().call_soon(self._complete, waiting)

    def _complete(self, waiting: _WaitingFetch) -> None:
        if waiting is self._waiting:
            self._waiting = None
            waiting.future.set_result(self._read(waiting.bytes_max, told=waiting.told))

    def _read(self, bytes_max: int, told: Iterable[ReplicaRead] = ()) -> list[ReplicaRead]:
        """Read the partitions that are ready, in turns: one that was served goes to the end when it is ready again."""
        reads = {read.replica: read for read in told}
        reads |= self._failed
        self._failed = {}
        for replica in list(islice(self._ready, _READS_MAX)):
            if bytes_max <= 0:
                break
            followed = self._followed[replica]
            read = self._read_one(replica, followed, bytes_max)
            del self._ready[replica]
            if read.error is not None:
                followed.is_answered = True
            elif read.slice is not None:
                bytes_max -= read.slice.length
                followed.is_answered = True
                followed.told_high_watermark = read.high_watermark
            elif read.high_watermark == followed.told_high_watermark and replica not in reads:
                continue
            else:
                followed.told_high_watermark = read.high_watermark
            reads[replica] = read
        return list(reads.values())

    def _read_one(self, replica: ReplicaId, followed: _Followed, bytes_max: int) -> ReplicaRead:
        partition, position = followed.partition, followed.position
        try:
            # Often only the high watermark is new.
            has_more = partition.log.end_offset != position.offset
            found = partition.read_for_replica(position.offset, bytes_max=bytes_max) if has_more else None
        except FlyMQError as error:
            return ReplicaRead(replica, start_offset=partition.start_offset, error=error)
        return ReplicaRead(replica, found, partition.high_watermark, partition.start_offset)

    def close(self) -> None:
        """The follower is gone."""
        if (waiting := self._waiting) is not None:
            self._waiting = None
            waiting.future.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for replica in list(self._followed):
            self._forget(replica)


def _refusal(replica: ReplicaId, partition: Partition, position: Position) -> ReplicaRead | None:
    """Return what a follower is told that cannot go on from its position."""
    start_offset = partition.start_offset
    if position.offset < start_offset:
        error = OffsetOutOfRange(f"{partition.name} starts at offset {start_offset}, not {position.offset}")
        return ReplicaRead(replica, start_offset=start_offset, error=error)
    diverging = _divergence(partition, position)
    return None if diverging is None else ReplicaRead(replica, diverging=diverging)


def _divergence(partition: Partition, position: Position) -> tuple[int, int] | None:
    """Return up to where the follower may have the same records, if it has others after that."""
    end_offset = partition.log.end_offset
    if position.last_epoch == partition.leader_epoch and position.offset <= end_offset:
        return None  # the ordinary case: both have records of this leader
    if position.last_epoch == NO_EPOCH:
        return None if position.offset <= end_offset else (NO_EPOCH, end_offset)
    found = partition.end_of_epoch(position.last_epoch)
    if found is None:
        return NO_EPOCH, partition.start_offset
    epoch, epoch_end = found
    return None if epoch == position.last_epoch and epoch_end >= position.offset else (epoch, epoch_end)
