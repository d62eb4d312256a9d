"""Garbage in any of a log's small files is noticed and answered with nothing or a named error, never with a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.property.storage.log_model import CONFIG, open_beside_list

from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import FlyMQError
from flymq.record.checksum import crc32c
from flymq.storage.leader_epochs import EpochRun, LeaderEpochs, read_epochs
from flymq.storage.producers.aborted_transactions import AbortedMark, parse_entries
from flymq.storage.producers.producer_state import Producers
from flymq.storage.producers.snapshot import encode_snapshot, parse_snapshot
from flymq.storage.recovery.checkpoint import Checkpoint, CleanMarker, Compacted
from flymq.storage.recovery.checksummed_note import encode_note, parse_note
from flymq.storage.recovery.open_log import open_log
from flymq.storage.segments.checked_ranges import CheckedRanges
from flymq.storage.segments.index import OffsetIndex, TimeIndex

DIRECTORY = Path("/data/0")
PATH = DIRECTORY / "file"
KINDS: list[Any] = [Checkpoint, CleanMarker, Compacted, list[tuple[int, int]]]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("start_offset"), inner),
    max_leaves=5,
)


def disk_with(content: bytes, path: Path = PATH) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    disk.open(path).append([content])
    return disk


@given(st.binary())
def test_garbage_is_no_note(raw: bytes) -> None:
    assert all(parse_note(raw, kind) is None for kind in KINDS)


@given(json_values)
def test_a_note_of_another_kind_is_not_taken_for_this_one(value: Any) -> None:
    note = encode_note(value)
    for kind in KINDS:
        parsed = parse_note(note, kind)
        assert parsed is None or msgspec.to_builtins(parsed) is not None


def test_a_note_that_is_nested_without_end_is_none() -> None:
    for content in (b'{"x":' + b"[" * 9_000, b"[" * 9_000):
        line = b"%b %08x\n" % (content, crc32c(content))
        assert all(parse_note(line * 2, kind) is None for kind in KINDS)


@given(st.integers(0, 1 << 62), st.integers(0), st.integers(0, 7))
def test_a_note_survives_any_one_flipped_bit(offset: int, at: int, bit: int) -> None:
    note = bytearray(encode_note(Checkpoint(offset, offset, 7)))
    note[at % len(note)] ^= 1 << bit
    assert parse_note(bytes(note), Checkpoint) == Checkpoint(offset, offset, 7)


@given(st.binary())
def test_garbage_is_no_index(raw: bytes) -> None:
    disk = disk_with(raw)
    assert OffsetIndex.map(disk, PATH) is None
    assert TimeIndex.map(disk, PATH) is None


@given(st.lists(st.tuples(st.integers(0, 1 << 31), st.integers(0, (1 << 32) - 1))), st.integers(0), st.integers(0, 7))
def test_a_damaged_index_is_not_believed(entries: list[tuple[int, int]], at: int, bit: int) -> None:
    index = OffsetIndex()
    for entry in sorted(entries):
        index.add(*entry)
    raw = bytearray(index.to_bytes())
    whole = OffsetIndex.map(disk_with(bytes(raw)), PATH)
    assert whole is not None
    assert len(whole) == len(entries)
    raw[at % len(raw)] ^= 1 << bit
    assert OffsetIndex.map(disk_with(bytes(raw)), PATH) is None


@given(st.binary())
def test_garbage_is_no_snapshot(raw: bytes) -> None:
    assert parse_snapshot(raw) is None


@given(json_values)
def test_whatever_has_the_right_checksum_is_a_snapshot_or_none(value: Any) -> None:
    try:
        body = msgspec.msgpack.encode(value)
    except OverflowError:
        return
    parsed = parse_snapshot(b"FMQP" + crc32c(body).to_bytes(4, "little") + body)
    assert parsed is None or Producers(parsed.producers).all() == parsed.producers


@given(st.integers(0), st.integers(0, 7))
def test_a_damaged_snapshot_is_not_believed(at: int, bit: int) -> None:
    raw = bytearray(encode_snapshot(Producers(), AbortedMark(3, 4)))
    raw[at % len(raw)] ^= 1 << bit
    assert parse_snapshot(bytes(raw)) is None


@given(st.binary(max_size=100))
def test_garbage_holds_no_aborted_transaction(raw: bytes) -> None:
    entries, is_whole = parse_entries(raw)
    assert entries == []
    assert is_whole == (raw == b"")


@given(st.binary() | st.lists(st.tuples(st.integers(), st.integers())).map(encode_note))
def test_garbage_is_no_history_of_leaders(raw: bytes) -> None:
    disk = disk_with(raw, DIRECTORY / "leader-epochs")
    starts = read_epochs(disk, DIRECTORY)
    assert starts is None or LeaderEpochs(starts).starts == starts


run_shapes = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(1, 5)), max_size=12)


@given(run_shapes, st.dictionaries(st.integers(0, 30), st.integers(0, 60), max_size=8))
def test_batches_correct_whatever_an_old_file_says_of_leaders(
    shapes: list[tuple[int, int, int]], old: dict[int, int]
) -> None:
    epochs = LeaderEpochs(zip(sorted(old), sorted(old.values()), strict=True))
    offset, epoch, written = 0, 0, dict[int, int]()
    for step, gap, length in shapes:
        start, epoch = offset, epoch + step
        offset += gap + length
        epochs.observe(EpochRun(epoch, start, start + gap, offset))
        written |= dict.fromkeys(range(start + gap, offset), epoch)
    assert {at: epochs.epoch_of(at) for at in written} == written


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=20), st.integers(0, 100))
def test_a_history_of_leaders_rises_whatever_is_done_to_it(begun: list[tuple[int, int]], cut: int) -> None:
    epochs = LeaderEpochs()
    for epoch, start_offset in sorted(begun, key=lambda entry: entry[1]):
        if epoch > epochs.current:
            epochs.begin(epoch, start_offset)
    epochs.cut_start(cut)
    assert all(start >= cut for _, start in epochs.starts)
    epochs.cut_end(cut + 30)
    assert all(start < cut + 30 for _, start in epochs.starts)
    assert [epoch for epoch, _ in epochs.starts] == sorted({epoch for epoch, _ in epochs.starts})


@given(st.data())
def test_garbage_in_any_file_of_a_log_is_answered_with_the_log_or_a_named_error(data: st.DataObject) -> None:
    disk = SimulatedDisk()
    both = open_beside_list(disk, DIRECTORY)
    for producer_id in (-1, 1, 1, 2):
        both.append(producer_id=producer_id, value_bytes=600, transactional=True)
    both.append_as_is([(1, 0)])
    both.log.close()
    path = data.draw(st.sampled_from(disk.paths()))
    file = disk.open_existing(path)
    file.truncate(data.draw(st.integers(0, disk.size(path))))
    file.append([data.draw(st.binary(max_size=200))])
    try:
        log = open_log(disk, DIRECTORY, CONFIG)
        offset = log.start_offset
        while (found := log.read(offset, bytes_max=1)) is not None:
            assert found.read() in {batch.data for batch in both.batches}
            offset += 1
        run_steps_here(log.find_time(both.now_ms))
        log.retain(both.now_ms)
    except FlyMQError:
        pass


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.booleans()), max_size=40), st.integers(0, 80))
def test_checked_ranges_are_a_set_of_bytes(steps: list[tuple[int, int, bool]], probe: int) -> None:
    ranges, covered = CheckedRanges(), set[int]()
    for start, length, is_cut in steps:
        if is_cut:
            ranges.cut(start)
            covered = {byte for byte in covered if byte < start}
        else:
            ranges.add(start, start + length)
            covered.update(range(start, start + length))
    for length in range(1, 20):
        assert ranges.cover(probe, probe + length) == covered.issuperset(range(probe, probe + length))
