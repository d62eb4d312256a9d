"""One replica of a partition: a log, the role of this broker, the visible offsets, and the waiting readers.

No `await` here: an append or a read is one step. Waiting for an fsync is a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from flymq.broker.replicas.replication import Replication
from flymq.broker.safety import Safe
from flymq.cluster.catalog import PartitionState
from flymq.host.clock import Clock
from flymq.host.tasks import Steps
from flymq.model.delivery import Acks, Isolation, Persistence
from flymq.model.errors import (
    FencedLeaderEpoch,
    FlyMQError,
    InvalidTransactionState,
    NotLeader,
    OffsetNotAvailable,
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
    """The role of this broker in a partition."""

    LEADER = "leader"
    """Serves produce and fetch requests of clients."""
    FOLLOWER = "follower"
    """Copies the log of the leader."""


class View(Enum):
    """The part of a partition that a reader sees."""

    COMMITTED = "committed"
    """Up to the last stable offset, without aborted transactions."""
    UNCOMMITTED = "uncommitted"
    """Up to the high watermark."""
    REPLICA = "replica"
    """Everything in the log: for followers."""

    @staticmethod
    def of(isolation: Isolation) -> View:
        return View.COMMITTED if isolation is Isolation.READ_COMMITTED else View.UNCOMMITTED


Written = Appended
"""Appended batches, and when they are acknowledged. The result of the log, with `safe` and `start_offset` set: a second
object per batch would cost a tenth of an append."""


@dataclass(slots=True)
class PartitionRead:
    """The result of reading one partition."""

    name: TopicPartition
    slice: Slice | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    start_offset: int = -1
    aborted: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of aborted transactions whose records the reader must skip."""
    error: FlyMQError | None = None

    @property
    def length(self) -> int:
        return 0 if self.slice is None else self.slice.length

    @property
    def offsets(self) -> int:
        """Number of offsets read: approximates the number of records without decoding the batches."""
        return 0 if self.slice is None else self.slice.offsets


class Partition:
    """One replica of a partition. It is a follower until it is made the leader."""

    def __init__(self, name: TopicPartition, log: PartitionLog, *, flusher: Flusher, clock: Clock) -> None:
        self.name = name
        self.log = log
        self.role = Role.FOLLOWER
        self.leader_epoch = NO_EPOCH
        self._flusher = flusher
        self._clock = clock
        self._waiting: dict[Callable[[], None], None] = {}  # in order of arrival
        self._seen_high_watermark = 0
        self.replication: Replication | None = None
        """Set while this broker leads a partition with several replicas."""
        self.on_caught_up: Callable[[], None] = lambda: None
        """Called when a follower that is not in sync has caught up."""
        self.may_lead_alone: Callable[[], bool] = lambda: True
        """Whether it is certain that no other broker leads. While it is not, only acks=all is acknowledged."""
        self.is_rewritten = False
        """Whether the log is being truncated. Its role does not change meanwhile."""
        self._is_replicated = False
        self.upkeep = asyncio.Lock()
        """Held by whatever removes or replaces segments in several steps: deletion, retention, compaction."""
        self._uses = 0
        self._idle: asyncio.Future[None] | None = None

    # --- maintenance

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Work on the files of the log, which are not removed meanwhile."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            if not self._uses and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def until_idle(self) -> None:
        """Wait until no maintenance works on the log."""
        while self._uses:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    # --- role

    def lead(self, epoch: int, state: PartitionState | None = None) -> None:
        """Become the leader, with this leader epoch; `state` if there may be several replicas."""
        self._take_role(Role.LEADER, epoch)
        if self.log.failure is None:
            self.log.begin_epoch(epoch)  # even if no record follows: a follower may ask for its start offset
        self._is_replicated = False
        if state is not None:
            self.update(state)

    def update(self, state: PartitionState) -> None:
        """The metadata has another state of the partition, in which this broker leads with the same leader epoch."""
        now_s = self._clock.monotonic_s()
        if self.replication is not None:
            self.replication.changed(state, now_s)
        elif len(state.replicas) > 1:
            self._is_replicated = True
            self.replication = Replication(
                self.name,
                self.log,
                state,
                self._flusher,
                self.wake,
                self._caught_up,
                high_watermark=self._seen_high_watermark,
                now_s=now_s,
            )

    def follow(self, epoch: int) -> None:
        """Become a follower of the leader of this epoch."""
        self._take_role(Role.FOLLOWER, epoch)
        self._is_replicated = True
        self.wake()  # waiting readers get the error that another broker leads

    def _take_role(self, role: Role, epoch: int) -> None:
        assert epoch >= self.leader_epoch, f"{self.name}: a leader epoch never goes back"
        if self.replication is not None:
            self.replication.end(NotLeader(f"another broker leads {self.name} now"))
            self.replication = None
        self.role, self.leader_epoch = role, epoch

    def _caught_up(self) -> None:
        self.on_caught_up()

    def set_high_watermark(self, high_watermark: int) -> None:
        """The leader has committed everything before this offset. What is not here yet does not count."""
        known = min(high_watermark, self.log.end_offset)
        if known > self._seen_high_watermark:
            self._seen_high_watermark = known
            self.wake()  # consumers that read from this follower

    def rewritten(self) -> None:
        """The log was truncated, or begins anew: what is gone is not committed."""
        self._seen_high_watermark = min(self._seen_high_watermark, self.log.end_offset)

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADER

    def check_leads(self, epoch: int = NO_EPOCH) -> None:
        """Raise an error unless this broker leads, with the leader epoch that the client knows."""
        if self.role is not Role.LEADER:
            raise NotLeader(f"this broker is not the leader of {self.name}")
        self.check_epoch(epoch)

    def check_epoch(self, epoch: int) -> None:
        """Raise an error unless this is the current leader epoch."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.name} is at leader epoch {self.leader_epoch}, not {epoch}")
        raise UnknownLeaderEpoch(f"{self.name} is at leader epoch {self.leader_epoch}, not yet {epoch}")

    # --- write

    def append(self, batches: Buffer, acks: Acks) -> Written:
        """Append non-transactional batches of a client."""
        if _is_transactional(batches):
            raise InvalidTransactionState(
                "the batch is transactional, but the request has no transactional id",
                hint="Send it with the transactional id of an open transaction.",
            )
        return self.append_in_transaction(batches, acks)

    def append_in_transaction(self, batches: Buffer, acks: Acks) -> Written:
        """Append batches, also transactional ones: the caller has checked the transaction and its producer."""
        if self.role is not Role.LEADER:
            self.check_leads()
        log, replication = self.log, self.replication
        if replication is not None:
            if acks is Acks.ALL:
                replication.check_enough()
            elif not self.may_lead_alone():
                raise NotLeader(f"this broker has lost touch with the cluster, and may lead {self.name} no more")
        written = log.append(batches, leader_epoch=self.leader_epoch, now_ms=self._clock.now_ms())
        written.start_offset = log.start_offset
        if replication is not None:
            written.safe = replication.appended(log.end_offset, acks)
            self.wake()  # followers
            return written
        is_fsync_topic = log.config.persistence is Persistence.FSYNC
        if (acks is Acks.ALL or is_fsync_topic) and isinstance(log, Log) and log.durable_offset <= written.last_offset:
            written.safe = self._flusher.durable(log, written.last_offset + 1)
            if is_fsync_topic:
                written.safe.add_done_callback(self._synced)  # only then it is visible
            else:
                self.wake()
        elif self._waiting:
            self.wake()
        return written

    def append_as_follower(self, batches: Buffer, *, leader_epoch: int) -> None:
        """Append batches of the leader of this epoch, byte for byte."""
        if self.role is not Role.FOLLOWER or leader_epoch != self.leader_epoch:
            raise NotLeader(f"{self.name} is a {self.role.value} at epoch {self.leader_epoch}, not at {leader_epoch}")
        self.log.append_as_is(batches, leader_epoch=leader_epoch, now_ms=self._clock.now_ms())
        self.wake()

    def append_marker(self, marker: Marker) -> None:
        """End a transaction in this partition."""
        self.check_leads()
        self.log.append_marker(encode_marker(marker), leader_epoch=self.leader_epoch, now_ms=self._clock.now_ms())
        if self.replication is not None:
            self.replication.appended(self.log.end_offset, Acks.LEADER)
        self.wake()

    def open_epoch(self, producer_id: int) -> int | None:
        """Return the producer epoch of the transaction that this producer has open in this partition."""
        producer = self.log.producers.get(producer_id)
        return None if producer is None or producer.open_since is None else producer.epoch

    def safe(self) -> Safe:
        """Return when everything appended so far is durable, and committed if there are several replicas."""
        log = self.log
        if self.replication is not None:
            return self.replication.committed(log.end_offset)
        if not isinstance(log, Log) or log.durable_offset >= log.end_offset:
            return None
        durable = self._flusher.durable(log, log.end_offset)
        durable.add_done_callback(self._synced)
        return durable

    def _synced(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            done.exception()  # reported to the sender of the append; retrieved here so that asyncio does not log it
        self.wake()

    # --- read

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def high_watermark(self) -> int:
        """Consumers see the records before it: those that every in-sync replica has. In an `fsync` topic only durable
        records are."""
        log = self.log
        if self.replication is not None:
            found = self.replication.high_watermark
        elif self._is_replicated:
            return self._seen_high_watermark
        else:
            found = log.durable_offset if log.config.persistence is Persistence.FSYNC else log.end_offset
        assert found >= self._seen_high_watermark, f"{self.name}: the high watermark never moves back"
        self._seen_high_watermark = found
        return found

    @property
    def last_stable_offset(self) -> int:
        """`read_committed` consumers see the records before it: no transaction that began earlier is open."""
        first_open = self.log.producers.first_open_offset
        high_watermark = self.high_watermark
        return high_watermark if first_open is None else min(first_open, high_watermark)

    def end_for(self, view: View) -> int:
        """Return the end offset of a view."""
        if view is View.COMMITTED:
            return self.last_stable_offset
        return self.high_watermark if view is View.UNCOMMITTED else self.log.end_offset

    def read(self, offset: int, *, bytes_max: int, view: View, from_follower: bool = False) -> PartitionRead:
        """Return whole batches from the one that contains `offset` on, at least one if any is visible.

        `from_follower`: a follower answers, too, with what it knows to be committed.
        """
        if self.role is not Role.LEADER:
            if not from_follower:
                self.check_leads()
            self._check_follower_has(offset)
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
        aborted: Sequence[tuple[int, int]] = ()
        if found is not None and view is View.COMMITTED:
            aborted = [entry[:2] for entry in log.aborted_between(offset, end_offset)]
        return PartitionRead(self.name, found, high_watermark, last_stable_offset, log.start_offset, aborted)

    def _check_follower_has(self, offset: int) -> None:
        if self.is_rewritten:
            raise NotLeader(f"{self.name} is being truncated on this broker")
        if offset > self.high_watermark:
            raise OffsetNotAvailable(f"{self.name} is known to be committed up to {self.high_watermark} here")

    def read_for_replica(self, offset: int, *, bytes_max: int) -> Slice | None:
        """Return whole batches for a follower, at least one if there is any."""
        return self.log.read(offset, bytes_max=bytes_max)

    def find_earliest(self) -> TimedOffset:
        """Return the log start offset, with the leader epoch of the record there."""
        start_offset = self.log.start_offset
        return TimedOffset(start_offset, -1, self.log.epochs.epoch_of(start_offset))

    def find_latest(self, view: View) -> TimedOffset:
        """Return the end offset, with the leader epoch of the next record.

        A new leader may know a lower high watermark than the last one did, until its followers have fetched.
        """
        if self.replication is not None and not self.replication.knows_committed:
            raise OffsetNotAvailable(f"what is committed of {self.name} is not known yet")
        return TimedOffset(self.end_for(view), -1, self.leader_epoch)

    def find_time(self, timestamp: int, view: View) -> Steps[TimedOffset | None]:
        """Return the first visible record at or after this timestamp."""
        found = yield from self.log.find_time(timestamp)
        return found if found is not None and found.offset < self.end_for(view) else None

    def find_latest_time(self) -> Steps[TimedOffset | None]:
        return self.log.find_latest_time()

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return (largest known epoch up to `epoch`, its end offset); None if all known epochs are later."""
        return self.log.epochs.end_of(epoch, self.log.end_offset)

    # --- change

    def delete_before(self, offset: int) -> Steps[int]:
        """Delete the records before `offset`, -1 for all visible ones; return the new log start offset."""
        self.check_leads()
        if not -1 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"{self.name} has offsets up to {self.high_watermark}, and -1 for all; not {offset}")
        yield from self.log.delete_before(self.high_watermark if offset == -1 else offset)
        return self.log.start_offset

    def configure(self, config: TopicConfig) -> None:
        if config.persistence is not self.log.config.persistence:
            self._seen_high_watermark = 0  # computed differently from now on
        self.log.config = config

    # --- wait

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when there may be new records."""
        self._waiting[wake] = None

    def stop_waiting(self, wake: Callable[[], None]) -> None:
        self._waiting.pop(wake, None)

    def wake(self) -> None:
        """Wake waiting readers: there may be new records, or the partition was deleted."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()


def _is_transactional(batches: Buffer) -> bool:
    """Check one byte of the header. Only the first batch is checked: transactional batches are sent one by one."""
    return (
        len(batches) >= HEADER_SIZE
        and bool(batches[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)
        and batches[MAGIC_AT] == MAGIC
    )
