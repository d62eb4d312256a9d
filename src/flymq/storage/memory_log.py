"""The log of a `memory` topic: the newest batches, within a bound, and no file. It offers what `Log` offers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from flymq.host.tasks import Steps
from flymq.model.errors import FencedLeaderEpoch, OffsetOutOfRange, PartitionOffline
from flymq.model.topic_config import TopicConfig
from flymq.record.header import BatchHeader, Buffer
from flymq.storage.batch_validation import Admitted, Appended, admit, admit_as_is, admit_marker
from flymq.storage.damage import Damage
from flymq.storage.leader_epochs import EpochRun, LeaderEpochs
from flymq.storage.producers.aborted_transactions import AbortedTransaction, transactions_between
from flymq.storage.producers.producer_state import Producers
from flymq.storage.producers.replay import apply_marker
from flymq.storage.retention import count_expired
from flymq.storage.segments.time_search import TimedOffset, first_since, latest_of, scan_batch

_ROOM_DIVISOR = 32  # this part of the memory is freed at once, so that a full log does not do it at every append


@dataclass(slots=True)
class MemorySlice:
    """Whole batches in memory."""

    data: bytes
    offsets: int
    """How many offsets it covers from the one asked for on."""

    in_memory: ClassVar[Literal[True]] = True

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
        self.damage = Damage()
        """Nothing on a disk, so nothing that can be damaged there."""
        self._batches: list[_Batch] = []
        self._aborted: list[AbortedTransaction] = []

    @property
    def durable_offset(self) -> int:
        """Nothing is written to disk, so nothing is waited for."""
        return self.end_offset

    def release_files(self) -> None:
        """There are none."""

    def append(self, batches: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        self._check_epoch(leader_epoch)
        admitted = admit(
            batches,
            next_offset=self.end_offset,
            leader_epoch=leader_epoch,
            producers=self.producers,
            config=self.config,
            now_ms=now_ms,
        )
        return admitted if isinstance(admitted, Appended) else self._write(admitted)

    def append_as_is(self, batches: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        self._check_epoch(leader_epoch)
        last_epoch = self.epochs.epoch_of(self.end_offset - 1)
        return self._write(
            admit_as_is(batches, next_offset=self.end_offset, last_epoch=last_epoch, leader_epoch=leader_epoch)
        )

    def begin_epoch(self, epoch: int) -> None:
        self._check_epoch(epoch)
        if epoch > self.epochs.current:
            self.epochs.begin(epoch, self.end_offset)

    def _check_epoch(self, leader_epoch: int) -> None:
        if leader_epoch < self.epochs.current:
            raise FencedLeaderEpoch(
                f"{self.name} has a leader of epoch {self.epochs.current}, this one has {leader_epoch}"
            )

    def append_marker(self, batch: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        self._check_epoch(leader_epoch)
        return self._write(admit_marker(batch, next_offset=self.end_offset, leader_epoch=leader_epoch))

    def _write(self, admitted: Admitted) -> Appended:
        first, last = admitted.headers[0], admitted.headers[-1]
        assert first.base_offset >= self.end_offset, f"offset {first.base_offset} does not follow {self.end_offset}"
        data = memoryview(b"".join(admitted.pieces))
        position, end_offset = 0, self.end_offset
        for header in admitted.headers:
            if header.leader_epoch != self.epochs.current:
                self.epochs.observe(EpochRun(header.leader_epoch, end_offset, header.base_offset, header.next_offset))
            end_offset = header.next_offset
            batch = _Batch(header, bytes(data[position : position + header.size]))
            self._batches.append(batch)
            self._remember(batch)
            position += header.size
        self.size += len(data)
        self.end_offset = last.next_offset
        self._make_room()
        return Appended(first.base_offset, last.last_offset, first.max_timestamp if first.has_log_append_time else -1)

    def _remember(self, batch: _Batch) -> None:
        header = batch.header
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.producers.apply(header)
        elif (entry := apply_marker(header, batch.data, self.producers)) is not None:
            self._aborted.append(entry)

    def _make_room(self) -> None:
        """Drop the oldest batches when there are too many, but never the last one."""
        if self.size <= self.config.memory_bytes:
            return
        surplus = self.size - self.config.memory_bytes + self.config.memory_bytes // _ROOM_DIVISOR
        count = 0
        while surplus > 0 and count < len(self._batches) - 1:
            surplus -= self._batches[count].size
            count += 1
        self._drop(count)

    def _drop(self, count: int) -> None:
        """Remove the oldest batches."""
        if count:
            self.size -= sum(batch.size for batch in self._batches[:count])
            self._begin_at(max(self.start_offset, self._batches[count - 1].header.next_offset))
            del self._batches[:count]

    def _begin_at(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.epochs.cut_start(start_offset)
        self._aborted = [entry for entry in self._aborted if entry.last_offset >= start_offset]

    def read(self, offset: int, *, bytes_max: int, end_offset: int | None = None) -> MemorySlice | None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"{self.name} holds the offsets {self.start_offset} to {self.end_offset}, not {offset}"
            )
        end = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        chosen: list[bytes] = []
        length, next_offset = 0, offset
        for at in range(self._find(offset), len(self._batches)):
            batch = self._batches[at]
            if batch.header.last_offset >= end or (chosen and length + batch.size > bytes_max):
                break
            chosen.append(batch.data)
            length += batch.size
            next_offset = batch.header.next_offset
        return MemorySlice(b"".join(chosen), next_offset - offset) if chosen else None

    def _find(self, offset: int) -> int:
        """Return the index of the first batch whose last offset is `offset` or later."""
        return bisect_left(self._batches, offset, key=lambda batch: batch.header.last_offset)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return transactions_between(self._aborted, start_offset, end_offset)

    def find_time(self, timestamp: int) -> Steps[TimedOffset | None]:
        scan = first_since(timestamp, self.start_offset)
        for batch in list(self._batches):
            yield None
            if batch.max_timestamp >= max(timestamp, 0):
                found: TimedOffset | None = yield partial(scan_batch, batch.header, batch.data, scan, self.start_offset)
                if found is not None and found.timestamp >= timestamp:
                    return found
        return None

    def find_latest_time(self) -> Steps[TimedOffset | None]:
        latest: TimedOffset | None = None
        scan = latest_of(self.start_offset)
        for batch in list(self._batches):
            yield None
            if batch.max_timestamp >= (0 if latest is None else latest.timestamp + 1):
                found: TimedOffset | None = yield partial(scan_batch, batch.header, batch.data, scan, self.start_offset)
                if (
                    found is not None
                    and found.timestamp >= 0
                    and (latest is None or found.timestamp > latest.timestamp)
                ):
                    latest = found
        return latest

    def truncate(self, end_offset: int) -> None:
        if end_offset >= self.end_offset:
            return
        kept = self._find(max(end_offset, self.start_offset))
        last = self._batches[kept - 1].header if kept else None
        self.end_offset = max(self.start_offset, last.next_offset if last is not None else 0)
        self.size -= sum(batch.size for batch in self._batches[kept:])
        del self._batches[kept:]
        self.epochs.cut_end(self.end_offset)
        self._aborted, self.producers = [], Producers()
        for batch in self._batches:
            self._remember(batch)

    def restart_at(self, start_offset: int) -> None:
        """Drop everything and continue at a later offset, as a follower does when its leader has deleted the rest."""
        assert start_offset > self.end_offset, f"{self.name} ends at {self.end_offset}, not before {start_offset}"
        self._drop(len(self._batches))
        self._begin_at(start_offset)
        self.end_offset = start_offset

    def delete_before(self, start_offset: int) -> Steps[None]:
        if start_offset > self.end_offset:
            raise OffsetOutOfRange(f"{self.name} ends at offset {self.end_offset}, before {start_offset}")
        self._drop(bisect_right(self._batches, start_offset, key=lambda batch: batch.header.next_offset))
        if start_offset > self.start_offset:
            self._begin_at(start_offset)
        yield None

    def retain(self, now_ms: int) -> Callable[[], None] | None:
        self._drop(count_expired(self._batches, self.config, now_ms))
        return None

    def close(self) -> None:
        self._batches.clear()
