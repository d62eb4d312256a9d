"""Compaction keeps what counts: by chance, through crashes at any step, beside appends, retention and truncation."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.property.storage.log_model import PRODUCER_IDS

from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import FileVanished
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import encode_batch
from flymq.record.control import Marker, MarkerType, encode_marker
from flymq.record.header import split_batches
from flymq.record.reading import parse_records
from flymq.record.record import Record
from flymq.storage.compaction import compactor
from flymq.storage.log import Log
from flymq.storage.recovery.open_log import open_log

SEEDS = int(os.environ.get("FLYMQ_CRASH_SEEDS", "100"))
DIRECTORY = Path("/data/topics/prices/0")
NOW_MS = 1_700_000_000_000
KEEP_TOMBSTONES_MS = 100
CONFIG = TopicConfig().with_changes(
    {
        "cleanup.policy": "compact",
        "segment.bytes": 1024,
        "index.interval.bytes": 100,
        "delete.retention.ms": KEEP_TOMBSTONES_MS,
        "min.cleanable.dirty.ratio": 0,
    }
)
KEYS = [b"%d" % number for number in range(8)]

State = dict[bytes, bytes]


@dataclass
class Writer:
    """Writes keys by chance and knows what a reader of committed records must find."""

    log: Log
    chance: random.Random
    now_ms: int = NOW_MS
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    """Producer id → offsets of its open transaction."""
    committed: set[int] = field(default_factory=set)
    written: dict[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    """Every record ever written, by its offset."""

    def write(self) -> None:
        chance = self.chance
        producer_id = chance.choice((-1, -1, *PRODUCER_IDS))
        records = [(chance.choice((None, *KEYS)), self._value()) for _ in range(chance.randint(1, 4))]
        batch = encode_batch(
            records,
            timestamp_ms=self.now_ms,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else self.sequences.get(producer_id, 0),
            transactional=producer_id >= 0,
        )
        compacted, self.log.config = self.log.config, self.log.config.with_changes({"cleanup.policy": "delete"})
        # Records without a key are from before the topic was compacted.
        appended = self.log.append(bytes(batch), leader_epoch=0, now_ms=self.now_ms)
        self.log.config = compacted
        offsets = range(appended.base_offset, appended.last_offset + 1)
        self.written.update(zip(offsets, records, strict=True))
        if producer_id < 0:
            self.committed.update(offsets)
        else:
            self.sequences[producer_id] = self.sequences.get(producer_id, 0) + len(records)
            self.open.setdefault(producer_id, []).extend(offsets)

    def _value(self) -> bytes | None:
        return None if self.chance.random() < 0.2 else b"%d" % self.chance.randrange(10**9)

    def end_transactions(self) -> None:
        for producer_id in list(self.open):
            kind = self.chance.choice(list(MarkerType))
            marker = encode_marker(Marker(kind, producer_id, 0, 0, self.now_ms))
            self.log.append_marker(bytes(marker), leader_epoch=0, now_ms=self.now_ms)
            offsets = self.open.pop(producer_id)
            if kind is MarkerType.COMMIT:
                self.committed.update(offsets)

    def settle(self) -> None:
        """Bring everything into sealed segments before the checkpoint, where compaction may reach it."""
        self.end_transactions()
        self.log.roll()
        point = self.log.begin_checkpoint()
        assert point is not None
        point.run()
        self.log.end_sync(point)

    @property
    def state(self) -> State:
        """The last value of each key."""
        return state_of([Record(*self.written[offset]) for offset in sorted(self.committed)])


def read_committed(log: Log) -> list[Record]:
    first_open = log.producers.first_open_offset
    stable = log.end_offset if first_open is None else first_open
    records: list[Record] = []
    offset = log.start_offset
    while (found := log.read(offset, bytes_max=600, end_offset=stable)) is not None:
        run = found.read()
        aborted = [entry[:2] for entry in log.aborted_between(offset, stable)]
        records += parse_records(run, start_offset=offset, aborted=aborted)
        offset = max(header.next_offset for _, header in split_batches(run))
    return records


def state_of(records: list[Record]) -> State:
    last = {record.key: record.value for record in records if record.key is not None}
    return {key: value for key, value in last.items() if value is not None}


def compact(log: Log, now_ms: int) -> bool:
    plan = compactor.plan(log, now_ms)
    if plan is None:
        return False
    run_steps_here(compactor.finish(log, plan, plan.run()))
    return True


def check(writer: Writer) -> list[Record]:
    """Compare what readers see with what was written; return it."""
    records = read_committed(writer.log)
    assert state_of(records) == writer.state
    assert [r.offset for r in records] == sorted({r.offset for r in records})
    assert all(writer.written[r.offset] == (r.key, r.value) for r in records)
    # Nobody's record without a key is ever superseded.
    without_key = [offset for offset in sorted(writer.committed) if writer.written[offset][0] is None]
    assert [r.offset for r in records if r.key is None] == without_key
    return records


@pytest.mark.parametrize("seed", range(SEEDS))
def test_compaction_survives_a_power_cut_at_any_step(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    writer = Writer(open_log(disk, DIRECTORY, CONFIG), chance)
    for _ in range(3):
        for _ in range(chance.randint(5, 25)):
            writer.write()
            if chance.random() < 0.2:
                writer.end_transactions()
        writer.settle()
        memory = {each.producer_id: each.last_sequence for each in writer.log.producers.all()}
        disk.bytes_until_cut = chance.randrange(4_000) if chance.random() < 0.7 else None
        with suppress(PowerCut):
            compact(writer.log, writer.now_ms)
        if disk.bytes_until_cut is not None:
            disk.cut_power()
        writer.log = open_log(disk, DIRECTORY, CONFIG)
        check(writer)
        assert {each.producer_id: each.last_sequence for each in writer.log.producers.all()} == memory
        writer.now_ms += chance.choice((10, 2 * KEEP_TOMBSTONES_MS))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_compacted_log_has_each_key_once_and_grows_no_further(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    writer = Writer(open_log(disk, DIRECTORY, CONFIG), chance)
    for _ in range(3):
        for _ in range(chance.randint(5, 40)):
            writer.write()
            if chance.random() < 0.2:
                writer.end_transactions()
        writer.settle()
        before = writer.log.size
        assert compact(writer.log, writer.now_ms)
        assert writer.log.size <= before + 100  # emptied batches and horizons cost a few bytes at most
        keys = [record.key for record in check(writer) if record.key is not None]
        assert len(keys) == len(set(keys))
        assert not compact(writer.log, writer.now_ms), "nothing has changed since"
        # The whole memory can be built again from what is left, should the snapshots be lost.
        for path in disk.paths():
            if path.suffix in (".producers", ".aborted"):
                disk.remove(path)
        writer.log = open_log(disk, DIRECTORY, CONFIG)
        assert writer.log.producers.first_open_offset is None
        assert {p.producer_id: p.last_sequence for p in writer.log.producers.all() if p.window} == {
            producer_id: sequence - 1 for producer_id, sequence in writer.sequences.items()
        }
        check(writer)
        writer.now_ms += chance.choice((10, 2 * KEEP_TOMBSTONES_MS))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_happens_to_the_log_while_compaction_runs_is_not_undone(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    writer = Writer(open_log(disk, DIRECTORY, CONFIG), chance)
    for _ in range(20):
        writer.write()
    writer.settle()
    log = writer.log
    plan = compactor.plan(log, writer.now_ms)
    assert plan is not None
    what = chance.choice(("append", "truncate", "delete"))
    bases = [segment.base_offset for segment in log.segments]
    boundary = chance.choice(bases[1:])

    def change() -> None:
        if what == "append":
            writer.write()
        elif what == "truncate":
            log.truncate(boundary)
        else:
            run_steps_here(log.delete_before(boundary))

    if chance.random() < 0.5:
        change()
        try:
            result = plan.run()
        except FileVanished:
            result = compactor.CompactionResult()
    else:
        result = plan.run()
        change()
    start_offset, end_offset = log.start_offset, log.end_offset
    run_steps_here(compactor.finish(log, plan, result))
    for reopened in (log, open_log(disk, DIRECTORY, CONFIG)):
        assert (reopened.start_offset, reopened.end_offset) == (start_offset, end_offset)
        records = read_committed(reopened)
        assert all(writer.written[r.offset] == (r.key, r.value) for r in records)
        assert all(start_offset <= r.offset < end_offset for r in records)
        if what == "append":
            assert state_of(records) == writer.state
