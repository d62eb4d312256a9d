"""The log of a `memory` topic: the newest batches, within a bound, and no file. It offers what `Log` offers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from flymq.model.errors import OffsetOutOfRange, PartitionOffline
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import parse_batch
from flymq.record.control import MarkerType, parse_marker
from flymq.record.header import BatchHeader, Buffer
from flymq.storage.aborted import AbortedTransaction
from flymq.storage.admission import Admitted, Appended, admit, admit_as_is, admit_marker
from flymq.storage.epochs import LeaderEpochs
from flymq.storage.log import TimedOffset
from flymq.storage.producers import Producers
from flymq.storage.retention import count_expired


@dataclass(slots=True)
class MemorySlice:
    """Whole batches in memory."""

    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)

    def read(self) -> bytes:
        return self.data


@dataclass(slots=True)
class _Batch:
    header: BatchHeader
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def max_timestamp(self) -> int:
        return self.header.max_timestamp


class MemoryLog:
    """A ring of batches: the oldest go when `memory.bytes` is full."""

    def __init__(self, name: str, config: TopicConfig) -> None:
        self.name = name
        self.config = config
        self.start_offset = 0
        self.end_offset = 0
        self.size = 0
        self.producers = Producers()
        self.epochs = LeaderEpochs()
        self.failure: PartitionOffline | None = None
        self._batches: list[_Batch] = []
        self._aborted: list[AbortedTransaction] = []

    @property
    def durable_offset(self) -> int:
        """Memory is as durable as it gets here."""
        return self.end_offset

    def append(self, batches: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        admitted = admit(
            batches,
            next_offset=self.end_offset,
            leader_epoch=leader_epoch,
            producers=self.producers,
            config=self.config,
            now_ms=now_ms,
        )
        return admitted if isinstance(admitted, Appended) else self._write(admitted)

    def append_as_is(self, batches: Buffer, *, now_ms: int) -> Appended:
        return self._write(admit_as_is(batches, next_offset=self.end_offset))

    def append_marker(self, batch: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        return self._write(admit_marker(batch, next_offset=self.end_offset, leader_epoch=leader_epoch))

    def _write(self, admitted: Admitted) -> Appended:
        data = memoryview(b"".join(admitted.pieces))
        position = 0
        for header in admitted.headers:
            if header.leader_epoch > self.epochs.current:
                self.epochs.begin(header.leader_epoch, header.base_offset)
            batch = _Batch(header, bytes(data[position : position + header.size]))
            self._batches.append(batch)
            self._remember(batch)
            position += header.size
        self.size += len(data)
        first, last = admitted.headers[0], admitted.headers[-1]
        self.end_offset = last.next_offset
        self._make_room()
        return Appended(first.base_offset, last.last_offset, first.max_timestamp if first.has_log_append_time else -1)

    def _remember(self, batch: _Batch) -> None:
        header = batch.header
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.producers.apply(header)
            return
        marker = parse_marker(batch.data)
        if marker is None:
            return
        committed = marker.type is MarkerType.COMMIT
        ended = self.producers.apply_marker(header, committed=committed, coordinator_epoch=marker.coordinator_epoch)
        if ended is not None and not committed:
            stable_offset = self.producers.first_open_offset or header.next_offset
            self._aborted.append(
                AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable_offset)
            )

    def _make_room(self) -> None:
        surplus = 0
        while self.size > self.config.memory_bytes and surplus < len(self._batches) - 1:
            self.size -= self._batches[surplus].size
            surplus += 1
        self._drop(surplus)

    def _drop(self, count: int) -> None:
        """Take away the oldest batches, whose bytes are already counted out."""
        if count:
            self.start_offset = max(self.start_offset, self._batches[count - 1].header.next_offset)
            del self._batches[:count]
            self._aborted = [entry for entry in self._aborted if entry.last_offset >= self.start_offset]

    def read(self, offset: int, *, bytes_max: int, end_offset: int | None = None) -> MemorySlice | None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"{self.name} holds the offsets {self.start_offset} to {self.end_offset}, not {offset}"
            )
        end = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        chosen: list[bytes] = []
        length = 0
        for batch in self._batches[self._find(offset) :]:
            if batch.header.base_offset >= end or (chosen and length + batch.size > bytes_max):
                break
            chosen.append(batch.data)
            length += batch.size
        return MemorySlice(b"".join(chosen)) if chosen else None

    def _find(self, offset: int) -> int:
        """Return the index of the first batch whose last offset is at or behind `offset`."""
        return bisect_left(self._batches, offset, key=lambda batch: batch.header.last_offset)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return [
            entry for entry in self._aborted if entry.last_offset >= start_offset and entry.first_offset < end_offset
        ]

    def find_time(self, timestamp: int) -> TimedOffset | None:
        for batch in self._batches:
            if batch.header.max_timestamp >= timestamp:
                for record in parse_batch(batch.data):
                    if record.timestamp_ms >= timestamp and record.offset >= self.start_offset:
                        return TimedOffset(record.offset, record.timestamp_ms, batch.header.leader_epoch)
        return None

    def find_latest_time(self) -> TimedOffset | None:
        latest = max((batch.header.max_timestamp for batch in self._batches), default=-1)
        return self.find_time(latest) if latest >= 0 else None

    def truncate(self, end_offset: int) -> None:
        end_offset = max(end_offset, self.start_offset)
        kept = self._find(end_offset)
        if kept == len(self._batches):
            return
        self.end_offset = self._batches[kept].header.base_offset
        self.size -= sum(batch.size for batch in self._batches[kept:])
        del self._batches[kept:]
        self.epochs.cut_end(self.end_offset)
        self._aborted, self.producers = [], Producers()
        for batch in self._batches:
            self._remember(batch)

    def delete_before(self, start_offset: int) -> None:
        if start_offset > self.end_offset:
            raise OffsetOutOfRange(f"{self.name} ends at offset {self.end_offset}, before {start_offset}")
        gone = bisect_right(self._batches, start_offset, key=lambda batch: batch.header.next_offset)
        self.size -= sum(batch.size for batch in self._batches[:gone])
        self._drop(gone)
        self.start_offset = max(self.start_offset, start_offset)

    def retain(self, now_ms: int) -> Callable[[], None] | None:
        gone = count_expired(self._batches, self.config, now_ms)
        self.size -= sum(batch.size for batch in self._batches[:gone])
        self._drop(gone)
        return None

    def close(self) -> None:
        self._batches.clear()
