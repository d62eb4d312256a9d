"""One partition as its readers and writers see it: a log, how much of it counts, and who waits for more.

No `await` here: an append or a read is one step. What takes time, an fsync, comes back as a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from flymq.host.clock import Clock
from flymq.model.delivery import Acks, Isolation, Persistence
from flymq.model.errors import FlyMQError, InvalidTransactionState, OffsetOutOfRange
from flymq.model.names import TopicPartition
from flymq.model.topic_config import TopicConfig
from flymq.record.control import Marker, encode_marker
from flymq.record.header import ATTRIBUTES_AT, HEADER_SIZE, MAGIC, MAGIC_AT, TRANSACTIONAL_BIT, Buffer
from flymq.storage.admission import Appended
from flymq.storage.directory import PartitionLog
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log, TimedOffset
from flymq.storage.memory import MemorySlice
from flymq.storage.segment import LogSlice

Slice = LogSlice | MemorySlice


@dataclass(slots=True)
class PartitionRead:
    """What a read of one partition gave."""

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
        """How many offsets were read: what stands for the records where nobody looks into the batches."""
        return 0 if self.slice is None else self.slice.offsets


class Partition:
    """The leader of one partition."""

    def __init__(
        self, name: TopicPartition, log: PartitionLog, *, leader_epoch: int, flusher: Flusher, clock: Clock
    ) -> None:
        self.name = name
        self.log = log
        self.leader_epoch = leader_epoch
        self._flusher = flusher
        self._clock = clock
        self._waiting: dict[Callable[[], None], None] = {}  # first come, first served

    # --- write

    def append(self, batches: Buffer, acks: Acks) -> tuple[Appended, asyncio.Future[None] | None]:
        """Append; the future, if there is one, is done when the batches are as safe as `acks` and the topic ask for."""
        if _is_transactional(batches):
            raise InvalidTransactionState(
                "the batch is marked transactional, but its request names no transaction",
                hint="Send it with the transactional id of an open transaction.",
            )
        return self.append_in_transaction(batches, acks)

    def append_in_transaction(self, batches: Buffer, acks: Acks) -> tuple[Appended, asyncio.Future[None] | None]:
        """Append batches that may belong to a transaction. That it is open, and theirs, was checked by the caller."""
        log = self.log
        appended = log.append(batches, leader_epoch=self.leader_epoch, now_ms=self._clock.now_ms())
        is_fsync_topic = log.config.persistence is Persistence.FSYNC
        if (acks is Acks.ALL or is_fsync_topic) and isinstance(log, Log) and log.durable_offset <= appended.last_offset:
            durable = self._flusher.durable(log, appended.last_offset + 1)
            durable.add_done_callback(self._synced)
            if not is_fsync_topic:
                self.wake()
            return appended, durable
        if self._waiting:
            self.wake()
        return appended, None

    def append_marker(self, marker: Marker) -> None:
        """End a transaction here."""
        self.log.append_marker(encode_marker(marker), leader_epoch=self.leader_epoch, now_ms=self._clock.now_ms())
        self.wake()

    def open_epoch(self, producer_id: int) -> int | None:
        """Return the epoch of the transaction this producer has open here."""
        producer = self.log.producers.get(producer_id)
        return None if producer is None or producer.open_since is None else producer.epoch

    def durable(self) -> asyncio.Future[None] | None:
        """Return a future that is done when everything appended so far is on the disk; None when it is."""
        log = self.log
        if not isinstance(log, Log) or log.durable_offset >= log.end_offset:
            return None
        durable = self._flusher.durable(log, log.end_offset)
        durable.add_done_callback(self._synced)
        return durable

    def _synced(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            done.exception()  # whoever asked for the append hears of it; here it only must not be lost
        self.wake()

    # --- read

    @property
    def high_watermark(self) -> int:
        """Readers see what is before it. In an `fsync` topic that is only what no power cut can take back."""
        log = self.log
        return log.durable_offset if log.config.persistence is Persistence.FSYNC else log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records see what is before it: no transaction that began earlier is open."""
        first_open = self.log.producers.first_open_offset
        high_watermark = self.high_watermark
        return high_watermark if first_open is None else min(first_open, high_watermark)

    def end_for(self, isolation: Isolation) -> int:
        """Return where a reader's view ends."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    def read(self, offset: int, *, bytes_max: int, isolation: Isolation) -> PartitionRead:
        """Return whole batches from the one that holds `offset`, at least one if any is visible."""
        log, high_watermark, last_stable_offset = self.log, self.high_watermark, self.last_stable_offset
        committed_only = isolation is Isolation.READ_COMMITTED
        end_offset = last_stable_offset if committed_only else high_watermark
        found = log.read(offset, bytes_max=bytes_max, end_offset=end_offset)
        aborted: list[tuple[int, int]] = []
        if found is not None and committed_only:
            aborted = [entry[:2] for entry in log.aborted_between(offset, end_offset)]
        return PartitionRead(self.name, found, high_watermark, last_stable_offset, log.start_offset, aborted)

    def find_time(self, timestamp: int, isolation: Isolation) -> TimedOffset | None:
        """Return the first visible record of this time or later."""
        found = self.log.find_time(timestamp)
        return found if found is not None and found.offset < self.end_for(isolation) else None

    def find_latest_time(self) -> TimedOffset | None:
        return self.log.find_latest_time()

    # --- change

    def delete_before(self, offset: int) -> int:
        """Remove the records before `offset`, -1 for all that are visible; return where the log starts now."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{self.name} ends at offset {self.high_watermark}, before {offset}")
        self.log.delete_before(self.high_watermark if offset == -1 else offset)
        return self.log.start_offset

    def configure(self, config: TopicConfig) -> None:
        self.log.config = config

    # --- wait

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when there may be more to read."""
        self._waiting[wake] = None

    def stop_waiting(self, wake: Callable[[], None]) -> None:
        self._waiting.pop(wake, None)

    def wake(self) -> None:
        """Tell those who wait that there may be more, or that the partition is gone."""
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
