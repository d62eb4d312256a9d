"""One partition as its readers and writers see it: a log, the role this broker has, how much is visible, who waits.

No `await` here: an append or a read is one step. What takes time, an fsync, comes back as a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from flymq.broker.safety import Safe
from flymq.host.clock import Clock
from flymq.model.delivery import Acks, Isolation, Persistence
from flymq.model.errors import (
    FencedLeaderEpoch,
    FlyMQError,
    InvalidTransactionState,
    NotLeader,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from flymq.model.names import TopicPartition
from flymq.model.topic_config import TopicConfig
from flymq.record.control import Marker, encode_marker
from flymq.record.header import ATTRIBUTES_AT, HEADER_SIZE, MAGIC, MAGIC_AT, TRANSACTIONAL_BIT, Buffer
from flymq.storage.batch_validation import Appended
from flymq.storage.data_directory import PartitionLog
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log, TimedOffset
from flymq.storage.memory_log import MemorySlice
from flymq.storage.segments.segment import LogSlice

Slice = LogSlice | MemorySlice

NO_EPOCH = -1


class Role(Enum):
    """What this broker is to a partition."""

    LEADER = "leader"
    """Clients write and read here."""
    FOLLOWER = "follower"
    """The log is a copy of the leader's."""


class View(Enum):
    """How much of a partition a reader sees."""

    COMMITTED = "committed"
    """Up to the last stable offset, without aborted transactions."""
    UNCOMMITTED = "uncommitted"
    """Up to the high watermark."""
    REPLICA = "replica"
    """Everything in the log: what a follower copies."""

    @staticmethod
    def of(isolation: Isolation) -> View:
        return View.COMMITTED if isolation is Isolation.READ_COMMITTED else View.UNCOMMITTED


Written = Appended
"""Batches in the log of a partition, and when they are as safe as was asked for. What the log returns, with `safe` and
`start_offset` filled in: a second object for each batch would cost as much as a tenth of an append."""


@dataclass(slots=True)
class PartitionRead:
    """The result of reading one partition."""

    name: TopicPartition
    slice: Slice | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    start_offset: int = -1
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """(producer id, first offset) of aborted transactions the reader must leave out."""
    error: FlyMQError | None = None

    @property
    def length(self) -> int:
        return 0 if self.slice is None else self.slice.length

    @property
    def offsets(self) -> int:
        """How many offsets were read: stands for the number of records where nobody looks into the batches."""
        return 0 if self.slice is None else self.slice.offsets


class Partition:
    """One replica of a partition. It follows until it is told to lead."""

    def __init__(self, name: TopicPartition, log: PartitionLog, *, flusher: Flusher, clock: Clock) -> None:
        self.name = name
        self.log = log
        self.role = Role.FOLLOWER
        self.leader_epoch = NO_EPOCH
        self._flusher = flusher
        self._clock = clock
        self._waiting: dict[Callable[[], None], None] = {}  # first come, first served
        self._seen_high_watermark = 0

    # --- role

    def lead(self, epoch: int) -> None:
        """Accept writes and reads of clients, under this leader epoch."""
        self._take_role(Role.LEADER, epoch)
        if self.log.failure is None:
            self.log.begin_epoch(epoch)  # even if no record follows: a follower may ask where it began

    def follow(self, epoch: int) -> None:
        """Accept what the leader of this epoch has written, and nothing else."""
        self._take_role(Role.FOLLOWER, epoch)
        self.wake()  # readers learn that another broker leads

    def _take_role(self, role: Role, epoch: int) -> None:
        assert epoch >= self.leader_epoch, f"{self.name}: a leader epoch never goes back"
        self.role, self.leader_epoch = role, epoch

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADER

    def check_leads(self, epoch: int = NO_EPOCH) -> None:
        """Raise unless this broker leads, under the epoch that the client believes to be the current one."""
        if self.role is not Role.LEADER:
            raise NotLeader(f"this broker does not lead {self.name}")
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.name} is at leader epoch {self.leader_epoch}, not {epoch}")
        raise UnknownLeaderEpoch(f"{self.name} is at leader epoch {self.leader_epoch}, not yet {epoch}")

    # --- write

    def append(self, batches: Buffer, acks: Acks) -> Written:
        """Append a client's batches outside of any transaction."""
        if _is_transactional(batches):
            raise InvalidTransactionState(
                "the batch is marked transactional, but its request names no transaction",
                hint="Send it with the transactional id of an open transaction.",
            )
        return self.append_in_transaction(batches, acks)

    def append_in_transaction(self, batches: Buffer, acks: Acks) -> Written:
        """Append batches that may belong to a transaction. The caller has checked that it is open, and whose it is."""
        if self.role is not Role.LEADER:
            self.check_leads()
        log = self.log
        written = log.append(batches, leader_epoch=self.leader_epoch, now_ms=self._clock.now_ms())
        written.start_offset = log.start_offset
        is_fsync_topic = log.config.persistence is Persistence.FSYNC
        if (acks is Acks.ALL or is_fsync_topic) and isinstance(log, Log) and log.durable_offset <= written.last_offset:
            written.safe = self._flusher.durable(log, written.last_offset + 1)
            if is_fsync_topic:
                written.safe.add_done_callback(self._synced)  # only then it can be read
            else:
                self.wake()
        elif self._waiting:
            self.wake()
        return written

    def append_as_follower(self, batches: Buffer, *, leader_epoch: int) -> None:
        """Append what the leader of this epoch has in its log, byte for byte."""
        if self.role is not Role.FOLLOWER or leader_epoch != self.leader_epoch:
            raise NotLeader(f"{self.name} is a {self.role.value} at epoch {self.leader_epoch}, not at {leader_epoch}")
        self.log.append_as_is(batches, leader_epoch=leader_epoch, now_ms=self._clock.now_ms())
        self.wake()

    def append_marker(self, marker: Marker) -> None:
        """End a transaction here."""
        self.check_leads()
        self.log.append_marker(encode_marker(marker), leader_epoch=self.leader_epoch, now_ms=self._clock.now_ms())
        self.wake()

    def open_epoch(self, producer_id: int) -> int | None:
        """Return the producer epoch of the transaction this producer has open here."""
        producer = self.log.producers.get(producer_id)
        return None if producer is None or producer.open_since is None else producer.epoch

    def safe(self) -> Safe:
        """Return when everything appended so far is on the disk."""
        log = self.log
        if not isinstance(log, Log) or log.durable_offset >= log.end_offset:
            return None
        durable = self._flusher.durable(log, log.end_offset)
        durable.add_done_callback(self._synced)
        return durable

    def _synced(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            done.exception()  # reported to whoever asked for the append; here it only must not be lost
        self.wake()

    # --- read

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def high_watermark(self) -> int:
        """Consumers see what is before it. In an `fsync` topic that is only what survives a power cut."""
        log = self.log
        found = log.durable_offset if log.config.persistence is Persistence.FSYNC else log.end_offset
        assert found >= self._seen_high_watermark, f"{self.name}: the high watermark never moves back"
        self._seen_high_watermark = found
        return found

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records see what is before it: no transaction that began earlier is open."""
        first_open = self.log.producers.first_open_offset
        high_watermark = self.high_watermark
        return high_watermark if first_open is None else min(first_open, high_watermark)

    def end_for(self, view: View) -> int:
        """Return where a reader's view ends."""
        if view is View.COMMITTED:
            return self.last_stable_offset
        return self.high_watermark if view is View.UNCOMMITTED else self.log.end_offset

    def read(self, offset: int, *, bytes_max: int, view: View) -> PartitionRead:
        """Return whole batches from the one that holds `offset`, at least one if any is visible."""
        if self.role is not Role.LEADER:
            self.check_leads()
        log = self.log
        high_watermark = last_stable_offset = self.high_watermark
        first_open = log.producers.first_open_offset
        if first_open is not None and first_open < high_watermark:
            last_stable_offset = first_open
        if view is View.COMMITTED:
            end_offset = last_stable_offset
        else:
            end_offset = high_watermark if view is View.UNCOMMITTED else log.end_offset
        found = log.read(offset, bytes_max=bytes_max, end_offset=end_offset)
        aborted: list[tuple[int, int]] = []
        if found is not None and view is View.COMMITTED:
            aborted = [entry[:2] for entry in log.aborted_between(offset, end_offset)]
        return PartitionRead(self.name, found, high_watermark, last_stable_offset, log.start_offset, aborted)

    def find_earliest(self) -> TimedOffset:
        """Return the start of the log, with the leader epoch that wrote what is there."""
        start_offset = self.log.start_offset
        return TimedOffset(start_offset, -1, self.log.epochs.epoch_of(start_offset))

    def find_latest(self, view: View) -> TimedOffset:
        """Return the end of the log, with the epoch that will write there."""
        return TimedOffset(self.end_for(view), -1, self.leader_epoch)

    def find_time(self, timestamp: int, view: View) -> TimedOffset | None:
        """Return the first visible record of this time or later."""
        found = self.log.find_time(timestamp)
        return found if found is not None and found.offset < self.end_for(view) else None

    def find_latest_time(self) -> TimedOffset | None:
        return self.log.find_latest_time()

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return (largest known epoch at most `epoch`, offset where it ended); None when all known ones are later."""
        return self.log.epochs.end_of(epoch, self.log.end_offset)

    # --- change

    def delete_before(self, offset: int) -> int:
        """Delete the records before `offset`, -1 for all that are visible; return where the log starts now."""
        self.check_leads()
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{self.name} ends at offset {self.high_watermark}, before {offset}")
        self.log.delete_before(self.high_watermark if offset == -1 else offset)
        return self.log.start_offset

    def configure(self, config: TopicConfig) -> None:
        if config.persistence is not self.log.config.persistence:
            self._seen_high_watermark = 0  # counted differently from here on
        self.log.config = config

    # --- wait

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when there may be more to read."""
        self._waiting[wake] = None

    def stop_waiting(self, wake: Callable[[], None]) -> None:
        self._waiting.pop(wake, None)

    def wake(self) -> None:
        """Tell readers that wait that there may be more, or that the partition is gone."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()


def _is_transactional(batches: Buffer) -> bool:
    """Look at the one byte that tells. A run of several batches cannot hold one: a producer sends them one by one."""
    return (
        len(batches) >= HEADER_SIZE
        and bool(batches[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)
        and batches[MAGIC_AT] == MAGIC
    )
