"""A log beside the list it should behave like. Every operation is done to both, and they are compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flymq.host.disk import Disk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import OffsetOutOfRange, OutOfOrderSequence, ProducerFenced
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import encode_batch, parse_batch
from flymq.record.control import Marker, MarkerType, encode_marker, parse_marker
from flymq.record.header import BatchHeader, assign, split_batches
from flymq.record.reading import parse_records
from flymq.storage.log import Log, SyncPoint
from flymq.storage.memory_log import MemoryLog
from flymq.storage.recovery.open_log import open_log

NOW_MS = 1_700_000_000_000
CONFIG = TopicConfig(segment_bytes=1500, index_interval_bytes=150, retention_ms=-1, retention_bytes=-1)
PRODUCER_IDS = (1, 2, 3)


@dataclass(slots=True)
class Batch:
    """A batch as the log holds it."""

    data: bytes
    header: BatchHeader

    @property
    def records(self) -> list[tuple[int, int]]:
        """(offset, timestamp) of what a reader sees."""
        return [] if self.header.is_control else [(r.offset, r.timestamp_ms) for r in parse_batch(self.data)]


def split(run: bytes) -> list[Batch]:
    return [Batch(run[at : at + header.size], header) for at, header in split_batches(run)]


@dataclass(slots=True)
class ProducerModel:
    epoch: int
    window: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(base sequence, last sequence, base offset, last offset) of the last five batches."""
    open_since: int | None = None
    takes_any_sequence: bool = False


class Memory:
    """What follows from a list of batches: producers, open and aborted transactions."""

    def __init__(self, batches: list[Batch]) -> None:
        self.producers: dict[int, ProducerModel] = {}
        self.aborted: list[tuple[int, int, int]] = []
        for batch in batches:
            self.apply(batch)

    def apply(self, batch: Batch) -> None:
        header = batch.header
        if header.producer_id < 0:
            return
        producer = self.producers.setdefault(header.producer_id, ProducerModel(header.producer_epoch))
        if header.producer_epoch > producer.epoch:
            producer.epoch, producer.window, producer.takes_any_sequence = header.producer_epoch, [], False
        if header.is_control:
            marker = parse_marker(batch.data)
            assert marker is not None
            if producer.open_since is not None and marker.type is MarkerType.ABORT:
                self.aborted.append((header.producer_id, producer.open_since, header.base_offset))
                producer.takes_any_sequence = bool(producer.window)
            producer.open_since = None
            return
        last_sequence = (header.base_sequence + header.last_offset_delta) % (1 << 31)
        producer.window.append((header.base_sequence, last_sequence, header.base_offset, header.last_offset))
        del producer.window[:-5]
        producer.takes_any_sequence = False
        if header.is_transactional and producer.open_since is None:
            producer.open_since = header.base_offset

    @property
    def first_open_offset(self) -> int | None:
        return min((p.open_since for p in self.producers.values() if p.open_since is not None), default=None)

    def next_sequence(self, producer_id: int) -> int:
        window = self.producers[producer_id].window if producer_id in self.producers else []
        return (window[-1][1] + 1) % (1 << 31) if window else 0


def memory_of(log: Log | MemoryLog) -> dict[int, ProducerModel]:
    """The log's own memory, in the model's terms."""
    return {
        each.producer_id: ProducerModel(
            each.epoch,
            [(b.base_sequence, b.last_sequence, b.base_offset, b.last_offset) for b in each.window],
            each.open_since,
            each.takes_any_sequence,
        )
        for each in log.producers.all()
    }


class LogBesideList:
    """Does to a log and to a list the same."""

    def __init__(self, log: Log | MemoryLog, *, reopen: Callable[[], Log] | None = None) -> None:
        self.log = log
        self._reopen = reopen
        self.batches: list[Batch] = []
        """Everything ever appended and not truncated; what was deleted from the start included."""
        self.memory = Memory([])
        self.may_forget = False
        """Batches are gone from the start, and a truncation took the snapshots that remembered their producers."""
        self.deleted_before = 0
        self.leader_epoch = 0
        self.now_ms = NOW_MS
        self.pending: list[tuple[SyncPoint, list[Callable[[], None]], bool]] = []
        """Work that was handed to a thread: a point, the steps that remain, whether it ends in `end_sync`."""
        self.in_flight: list[Batch] = []
        self.truncating_to: int | None = None
        self.deleting_before: int | None = None
        self.begun_epochs: dict[int, int] = {}
        """Leader epochs noted without a record, and where."""
        self.durable_epochs: dict[int, int] = {}
        """Those of them that were synced."""

    # --- operations

    def append(
        self,
        *,
        records: int = 1,
        value_bytes: int = 20,
        producer_id: int = -1,
        transactional: bool = False,
        bump_epoch: bool = False,
        age_ms: int = 0,
    ) -> None:
        producer = self.memory.producers.get(producer_id)
        epoch = -1 if producer_id < 0 else (producer.epoch if producer else 0) + bump_epoch
        sequence = -1 if producer_id < 0 else 0 if bump_epoch else self.memory.next_sequence(producer_id)
        self._append(
            encode_batch(
                [(b"key", b"v" * value_bytes, (), self.now_ms - age_ms + n) for n in range(records)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional and producer_id >= 0,
            )
        )

    def _append(self, batch: bytearray) -> None:
        end_offset = self.log.end_offset
        stored = bytearray(batch)
        assign(stored, 0, base_offset=end_offset, leader_epoch=self.leader_epoch)
        self.in_flight = split(bytes(stored))
        appended = self.log.append(bytes(batch), leader_epoch=self.leader_epoch, now_ms=self.now_ms)
        assert not appended.repeated
        assert (appended.base_offset, appended.last_offset) == (end_offset, self.in_flight[-1].header.last_offset)
        self._appended()

    def _appended(self) -> None:
        for batch in self.in_flight:
            self.memory.apply(batch)
        self.batches += self.in_flight
        self.in_flight = []
        assert self.log.end_offset == self.batches[-1].header.next_offset

    def append_as_is(self, shapes: list[tuple[int, int]], *, catch_up: bool = False) -> None:
        """Append a run of batches and a marker as a follower does: (records, gap before) of each.

        One that catches up gets batches of epochs before the one it was told of.
        """
        offset, run = self.log.end_offset, bytearray()
        epoch = self.leader_epoch
        if catch_up:
            epoch = max(0, self.batches[-1].header.leader_epoch if self.batches else 0)
            for noted in (self.begun_epochs, self.durable_epochs):
                for later in [each for each, start in noted.items() if each > epoch and start >= offset]:
                    del noted[later]
        for records, gap in shapes:
            batch = encode_batch([(b"key", b"value", (), self.now_ms)] * records)
            assign(batch, 0, base_offset=offset + gap, leader_epoch=epoch)
            run += batch
            offset += gap + records
        marker = encode_marker(Marker(MarkerType.ABORT, 3, self._epoch_of(3), 0, self.now_ms))
        assign(marker, 0, base_offset=offset, leader_epoch=epoch)
        self.in_flight = split(bytes(run + marker))
        self.log.append_as_is(bytes(run + marker), leader_epoch=self.leader_epoch, now_ms=self.now_ms)
        self._appended()

    def _epoch_of(self, producer_id: int) -> int:
        producer = self.memory.producers.get(producer_id)
        return producer.epoch if producer else 0

    def end_transaction(self, producer_id: int, kind: MarkerType) -> None:
        marker = encode_marker(Marker(kind, producer_id, self._epoch_of(producer_id), 0, self.now_ms))
        stored = bytearray(marker)
        assign(stored, 0, base_offset=self.log.end_offset, leader_epoch=self.leader_epoch)
        self.in_flight = split(bytes(stored))
        self.log.append_marker(bytes(marker), leader_epoch=self.leader_epoch, now_ms=self.now_ms)
        self._appended()

    def repeat(self, producer_id: int, back: int) -> None:
        """Send a batch of the window again: it is answered, and nothing changes."""
        producer = self.memory.producers.get(producer_id)
        if producer is None or not producer.window:
            return
        base_sequence, _, base_offset, last_offset = producer.window[-1 - back % len(producer.window)]
        batch = encode_batch(
            [(b"key", b"again")] * (last_offset - base_offset + 1),
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            base_sequence=base_sequence,
        )
        end_offset = self.log.end_offset
        appended = self.log.append(bytes(batch), leader_epoch=self.leader_epoch, now_ms=self.now_ms)
        assert appended.repeated
        assert (appended.base_offset, appended.last_offset) == (base_offset, last_offset)
        assert self.log.end_offset == end_offset

    def send_wrong(self, producer_id: int) -> None:
        """Leave a gap, or come with an old epoch: it is refused, and nothing changes."""
        producer = self.memory.producers.get(producer_id)
        if producer is None or not producer.window:
            return
        gap = -1 if producer.takes_any_sequence else producer.epoch
        for epoch, sequence, error in (
            (gap, (self.memory.next_sequence(producer_id) + 7) % (1 << 31), OutOfOrderSequence),
            (producer.epoch + 1, 1, OutOfOrderSequence),
            (producer.epoch - 1, 0, ProducerFenced),
        ):
            if epoch >= 0:
                batch = encode_batch(
                    [(None, b"")], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
                )
                end_offset = self.log.end_offset
                with pytest.raises(error):
                    self.log.append(bytes(batch), leader_epoch=self.leader_epoch, now_ms=self.now_ms)
                assert self.log.end_offset == end_offset

    def begin_leader_epoch(self) -> None:
        self.leader_epoch += 1
        is_new = self.log.end_offset == 0 and not self.log.epochs.starts
        self.log.begin_epoch(self.leader_epoch)
        if not is_new:  # the first epoch of a new log is noted again by its next leader, so it need not be durable
            self.begun_epochs[self.leader_epoch] = self.log.end_offset

    def truncate(self, end_offset: int) -> None:
        self.truncating_to = max(end_offset, self.log.start_offset)
        self.log.truncate(end_offset)
        self._truncated(self.truncating_to)
        self.truncating_to = None

    def _truncated(self, end_offset: int) -> None:
        kept = [batch for batch in self.batches if batch.header.last_offset < end_offset]
        if len(kept) < len(self.batches):
            self.batches = kept
            self.may_forget |= self.log.start_offset > 0
            self.recall()
            end_offset = max(self.log.start_offset, kept[-1].header.next_offset if kept else 0)
            assert self.log.end_offset == end_offset
            self.forget_epochs_from(end_offset)

    def forget_epochs_from(self, end_offset: int) -> None:
        """A truncation to this offset takes the epochs that began there or later."""
        self.begun_epochs = {epoch: start for epoch, start in self.begun_epochs.items() if start < end_offset}
        self.durable_epochs = {epoch: start for epoch, start in self.durable_epochs.items() if start < end_offset}

    def recall(self) -> None:
        """Work out what the log should know of its producers now: all, or else what followed on some batch."""
        known = memory_of(self.log)
        starts = {0, *(batch.header.base_offset for batch in self.batches), self.log.end_offset}
        for start in sorted(starts) if self.may_forget else [0]:
            self.memory = Memory([batch for batch in self.batches if batch.header.base_offset >= start])
            if self.memory.producers == known or start >= self.log.start_offset:
                break

    def delete_before(self, start_offset: int) -> None:
        self.deleting_before = start_offset
        run_steps_here(self.log.delete_before(start_offset))
        self.deleted_before = max(self.deleted_before, start_offset)
        assert self.log.start_offset >= start_offset
        self.deleting_before = None

    def retain(self, *, bytes_max: int = -1, age_ms: int = -1) -> None:
        """Apply retention with other settings; the removal of files becomes pending."""
        log, before = self.log, self.log.start_offset
        config = log.config
        sizes = [segment.size for segment in log.segments] if isinstance(log, Log) else []
        log.config = config.with_changes({"retention.bytes": bytes_max, "retention.ms": age_ms})
        removal = log.retain(self.now_ms)
        log.config = config
        assert log.start_offset >= before
        if age_ms < 0 and bytes_max >= 0:
            assert log.size >= min(bytes_max, sum(sizes)) or not isinstance(log, Log)
        if age_ms >= 0 and bytes_max < 0:
            for batch in self.batches:
                if before <= batch.header.last_offset < log.start_offset:
                    assert self.now_ms - batch.header.max_timestamp > age_ms
        if removal is not None:
            self.pending.append((SyncPoint(0), [removal], False))

    def roll(self) -> None:
        assert isinstance(self.log, Log)
        if self.log.segments[-1].size:
            self.log.roll()

    def sync(self) -> None:
        assert isinstance(self.log, Log)
        point = self.log.begin_sync()
        point.run()
        self.log.end_sync(point)
        assert self.log.durable_offset == self.log.end_offset
        assert self.log.is_durable
        self.durable_epochs = dict(self.begun_epochs)

    def begin_sync(self) -> None:
        assert isinstance(self.log, Log)
        point = self.log.begin_sync()
        self.pending.append((point, list(point.steps), True))

    def begin_checkpoint(self) -> None:
        assert isinstance(self.log, Log)
        if (point := self.log.begin_checkpoint()) is not None:
            self.pending.append((point, list(point.steps), True))

    def advance(self, which: int) -> None:
        """Let a thread do its next step."""
        if not self.pending:
            return
        point, steps, ends = self.pending[which % len(self.pending)]
        if steps:
            steps.pop(0)()
        if not steps:
            self.pending.remove((point, steps, ends))
            if ends:
                assert isinstance(self.log, Log)
                self.log.end_sync(point)

    def finish_pending(self) -> None:
        while self.pending:
            self.advance(0)

    def close_and_reopen(self) -> None:
        assert self._reopen is not None
        self.finish_pending()
        before = self.log.start_offset
        self.log.close()
        self.log = self._reopen()
        assert self.log.recovery.clean
        assert self.log.start_offset == before
        assert self.log.durable_offset == self.log.end_offset

    def kill_and_reopen(self) -> None:
        """The process ends without a word, the machine goes on: what was written is in the page cache."""
        assert self._reopen is not None
        self.pending.clear()
        before, end_offset = self.log.start_offset, self.log.end_offset
        self.log = self._reopen()
        assert self.log.end_offset == end_offset
        # Segments that were on their way out may be back.
        assert self.deleted_before <= self.log.start_offset <= before
        assert self.log.durable_offset == self.log.end_offset
        self.recall()
        self.recall_epochs()

    def recall_epochs(self) -> None:
        """After a crash: epochs that were noted and not synced may be there or not."""
        starts = set(self.log.epochs.starts)
        self.begun_epochs = {epoch: start for epoch, start in self.begun_epochs.items() if (epoch, start) in starts}

    # --- comparison

    def held(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.header.last_offset >= self.log.start_offset]

    def check(self) -> None:
        self.check_reads()
        self.check_memory()
        self.check_epochs()

    def check_reads(self) -> None:
        """Read everything, one batch at a time."""
        log, offset, seen = self.log, self.log.start_offset, []
        while (found := log.read(offset, bytes_max=1)) is not None:
            (batch,) = split(found.read())
            assert batch.header.last_offset >= offset
            seen.append(batch)
            offset = batch.header.next_offset
        assert [b.data for b in seen] == [b.data for b in self.held()]
        assert offset == log.end_offset or not seen
        for outside in (log.start_offset - 1, log.end_offset + 1):
            with pytest.raises(OffsetOutOfRange):
                log.read(outside, bytes_max=1)

    def check_read(self, offset: int, bytes_max: int, end_offset: int | None) -> None:
        """Read a run: it begins with the right batch and ends for a reason."""
        log = self.log
        end = log.end_offset if end_offset is None else min(end_offset, log.end_offset)
        found = log.read(offset, bytes_max=bytes_max, end_offset=end_offset)
        expected = [b for b in self.batches if b.header.last_offset >= offset and b.header.last_offset < end]
        if found is None:
            assert not expected or offset >= end
            return
        seen = split(found.read())
        assert found.length == sum(len(b.data) for b in seen)
        assert [b.data for b in seen] == [b.data for b in expected[: len(seen)]]
        assert found.length <= bytes_max or len(seen) == 1
        if len(seen) < len(expected):
            following = expected[len(seen)]
            bases = [segment.base_offset for segment in log.segments] if isinstance(log, Log) else []
            assert found.length + len(following.data) > bytes_max or any(
                seen[-1].header.next_offset <= base <= following.header.base_offset for base in bases
            )

    def check_memory(self) -> None:
        assert memory_of(self.log) == self.memory.producers
        assert self.log.producers.first_open_offset == self.memory.first_open_offset
        assert self.committed() == self.expected_committed()

    def committed(self) -> list[int]:
        """Offsets of the records that a reader of committed data sees."""
        log = self.log
        first_open = log.producers.first_open_offset
        stable = log.end_offset if first_open is None else max(first_open, log.start_offset)
        offset, seen = log.start_offset, []
        while (found := log.read(offset, bytes_max=400, end_offset=stable)) is not None:
            run = found.read()
            aborted = [entry[:2] for entry in log.aborted_between(offset, stable)]
            seen += [record.offset for record in parse_records(run, start_offset=offset, aborted=aborted)]
            offset = split(run)[-1].header.next_offset
        return seen

    def expected_committed(self) -> list[int]:
        first_open = self.log.producers.first_open_offset
        stable = self.log.end_offset if first_open is None else first_open
        aborted = Memory(self.batches).aborted
        return [
            offset
            for batch in self.held()
            if batch.header.last_offset < stable and not _is_aborted(batch.header, aborted)
            for offset, _ in batch.records
            if offset >= self.log.start_offset
        ]

    def check_epochs(self) -> None:
        starts = self.log.epochs.starts
        assert [epoch for epoch, _ in starts] == sorted({epoch for epoch, _ in starts})
        assert [start for _, start in starts] == sorted(start for _, start in starts)
        assert all(start <= self.log.end_offset for _, start in starts)
        for batch in self.held():
            offset = max(batch.header.base_offset, self.log.start_offset)
            assert self.log.epochs.epoch_of(offset) == batch.header.leader_epoch
        first_offset = self.log.segments[0].base_offset if isinstance(self.log, Log) else self.log.start_offset
        durable = {(epoch, start) for epoch, start in self.durable_epochs.items() if start >= first_offset}
        assert durable <= set(starts)

    def check_time(self, timestamp: int) -> None:
        times = [
            (offset, time_ms)
            for batch in self.held()
            for offset, time_ms in batch.records
            if offset >= self.log.start_offset
        ]
        expected = next((found for found in times if found[1] >= timestamp), None)
        found = run_steps_here(self.log.find_time(timestamp))
        assert (found and found[:2]) == expected
        latest = run_steps_here(self.log.find_latest_time())
        assert (latest and latest[:2]) == max(times, key=lambda time: time[1], default=None)


def _is_aborted(header: BatchHeader, aborted: list[tuple[int, int, int]]) -> bool:
    return header.is_transactional and any(
        producer_id == header.producer_id and first <= header.base_offset <= last
        for producer_id, first, last in aborted
    )


def open_beside_list(disk: Disk, directory: Path, config: TopicConfig = CONFIG) -> LogBesideList:
    return LogBesideList(open_log(disk, directory, config), reopen=lambda: open_log(disk, directory, config))


def random_step(both: LogBesideList, chance: random.Random, *, keep_start: bool) -> None:
    """Do one operation of the many, chosen by chance."""
    operations: list[tuple[int, Callable[[], Any]]] = [
        (
            30,
            lambda: both.append(
                records=chance.randint(1, 4),
                value_bytes=chance.choice((0, 10, 60, 300)),
                producer_id=chance.choice((-1, -1, *PRODUCER_IDS)),
                transactional=chance.random() < 0.6,
                bump_epoch=chance.random() < 0.05,
                age_ms=chance.choice((0, 0, 5_000, 50_000)),
            ),
        ),
        (8, lambda: both.end_transaction(chance.choice(PRODUCER_IDS), chance.choice(list(MarkerType)))),
        (2, lambda: both.append_as_is([(chance.randint(1, 3), chance.choice((0, 0, 2))) for _ in range(2)])),
        (1, lambda: both.append_as_is([(1, chance.choice((0, 2)))], catch_up=True)),
        (2, lambda: both.repeat(chance.choice(PRODUCER_IDS), chance.randrange(5))),
        (1, lambda: both.send_wrong(chance.choice(PRODUCER_IDS))),
        (2, both.begin_leader_epoch),
        (3, lambda: both.truncate(chance.randint(max(0, both.log.end_offset - 20), both.log.end_offset))),
        (1, lambda: both.truncate(chance.randint(0, both.log.end_offset))),
        (0 if keep_start else 2, lambda: both.delete_before(chance.randint(0, both.log.end_offset))),
        (0 if keep_start else 2, lambda: both.retain(bytes_max=chance.choice((0, 500, 3000)))),
        (0 if keep_start else 1, lambda: both.retain(age_ms=chance.choice((0, 10_000)))),
        (2, both.roll),
        (4, both.sync),
        (4, both.begin_sync),
        (4, both.begin_checkpoint),
        (10, lambda: both.advance(chance.randrange(10))),
        (2, both.close_and_reopen),
        (2, both.kill_and_reopen),
    ]
    both.now_ms += chance.choice((1, 10, 1000))
    chance.choices([call for _, call in operations], [weight for weight, _ in operations])[0]()
