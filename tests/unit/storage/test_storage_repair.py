"""A log that no broker can open is examined, salvaged and rebuilt; what was cut by mistake is taken back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.storage.batches import (
    DIRECTORY,
    append,
    batch,
    checkpoint,
    idempotent,
    open_simulated,
    reopen,
    settings,
    sync,
    values,
)

from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import CorruptLog
from flymq.record.header import ATTRIBUTES_AT, CRC_AT, MAGIC_AT
from flymq.storage.log import Log
from flymq.storage.repair.readopt import append_again, find_cuts, readopt
from flymq.storage.repair.salvage import examine_log, rebuild, salvage
from flymq.storage.segments.segment import segment_name

SMALL = settings(segment_bytes=1024)
NAMES = [letter * 300 for letter in "abcdefg"]


def written(*, closed: bool = False) -> tuple[SimulatedDisk, Log]:
    """Return a log of four segments, all of it on the disk."""
    disk, log = open_simulated(SMALL)
    append(log, *map(batch, NAMES))
    sync(log)
    if closed:
        log.close()
    return disk, log


def segment(base_offset: int) -> Path:
    return DIRECTORY / segment_name(base_offset, ".log")


def overwrite(disk: SimulatedDisk, path: Path, position: int, garbage: bytes) -> None:
    raw = bytearray(disk.read(path))
    raw[position : position + len(garbage)] = garbage
    file = disk.open_existing(path)
    file.truncate(0)
    file.append([bytes(raw)])


# --- examine


def test_a_whole_log_has_no_findings() -> None:
    disk, _ = written()
    found = examine_log(disk, DIRECTORY)
    assert found.is_whole and found.end_offset == 7


def test_a_torn_end_is_no_damage_since_opening_cuts_it() -> None:
    disk, log = open_simulated()
    append(log, batch("a"), batch("b"))
    disk.open_existing(segment(0)).truncate(log.size - 3)
    assert examine_log(disk, DIRECTORY).is_whole


@pytest.mark.parametrize("base_offset", [0, 2, 6])
def test_damage_is_found_with_its_place_and_its_offsets(base_offset: int) -> None:
    disk, _ = written()
    overwrite(disk, segment(base_offset), 100, b"garbage!")
    found = examine_log(disk, DIRECTORY)
    ((path, damaged),) = found.damaged
    assert (path, damaged.start, damaged.offsets[0]) == (segment(base_offset), 0, base_offset)
    assert "checksum" in damaged.reason


def test_a_missing_segment_is_found_with_its_offsets() -> None:
    disk, _ = written()
    disk.remove(segment(2))
    assert examine_log(disk, DIRECTORY).missing == [(2, 4)]
    disk.remove(segment(6))
    assert examine_log(disk, DIRECTORY).missing == [(2, 4), (6, 7)]


# --- salvage


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("which", range(7))
def test_only_the_damaged_batch_is_lost_and_no_offset_is_used_again(which: int, closed: bool) -> None:
    disk, log = written(closed=closed)
    base, place = which - which % 2, which % 2
    overwrite(disk, segment(base), place * len(batch(NAMES[0])) + 100, b"garbage!")
    taken_out = salvage(disk, examine_log(disk, DIRECTORY))
    assert [path.name for path in taken_out] == [segment_name(base, f".log.bad-{place * len(batch(NAMES[0]))}")]
    log = reopen(disk, SMALL)
    assert values(log) == [name for at, name in enumerate(NAMES) if at != which]
    assert log.end_offset == 7 and append(log, batch("new")) == [7]
    assert examine_log(disk, DIRECTORY).is_whole


@pytest.mark.parametrize("byte", [3, 7, 10, 11, MAGIC_AT, CRC_AT, ATTRIBUTES_AT + 1, 50, 200])
def test_a_flipped_bit_is_mended_and_nothing_is_lost(byte: int) -> None:
    for which in range(7):
        for bit in (0, 5):
            disk, log = written()
            position = which % 2 * len(batch(NAMES[0]))
            disk.flip_bit(segment(which - which % 2), position + byte, bit)
            found = examine_log(disk, DIRECTORY)
            if which == 6 and byte < 8:
                continue  # nothing follows that the offset could be compared with
            if byte == CRC_AT:
                with pytest.raises(CorruptLog):
                    reopen(disk, SMALL)
            assert salvage(disk, found) == [], (which, bit)
            log = reopen(disk, SMALL)
            assert values(log) == NAMES and log.end_offset == 7


def test_missing_segments_are_a_gap_and_the_log_goes_on_behind_it() -> None:
    for gone in ([2], [6], [0, 2], [2, 4, 6], [0, 2, 4, 6]):
        disk, log = written()
        checkpoint(log)
        for base in gone:
            disk.remove(segment(base))
        salvage(disk, examine_log(disk, DIRECTORY))
        log = reopen(disk, SMALL)
        assert values(log) == [name for at, name in enumerate(NAMES) if at - at % 2 not in gone]
        assert append(log, batch("new")) == [7]


def test_a_reader_passes_over_what_was_taken_out() -> None:
    disk, _ = written()
    overwrite(disk, segment(2), 100, b"garbage!")
    salvage(disk, examine_log(disk, DIRECTORY))
    found = reopen(disk, SMALL).read(2, bytes_max=1)
    assert found is not None and NAMES[3].encode() in found.read()


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_during_the_repair_loses_nothing_that_was_whole(seed: int) -> None:
    chance = random.Random(seed)
    disk, log = written()
    checkpoint(log)
    for which in (1, 2, 6):
        overwrite(disk, segment(which - which % 2), which % 2 * len(batch(NAMES[0])) + 100, b"garbage!")
    for path in disk.paths():
        disk.open_existing(path).sync()
    disk.sync_directory(DIRECTORY)
    for _ in range(10):
        disk.bytes_until_cut = chance.randrange(4000)
        try:
            salvage(disk, examine_log(disk, DIRECTORY))
        except PowerCut:
            disk.cut_power()
    disk.bytes_until_cut = None
    salvage(disk, examine_log(disk, DIRECTORY))
    log = reopen(disk, SMALL)
    assert values(log) == [NAMES[at] for at in (0, 3, 4, 5)]
    assert append(log, batch("new")) == [7]


# --- rebuild


def test_what_is_derived_is_built_again() -> None:
    disk, log = written()
    append(log, idempotent(7, 0))
    checkpoint(log)
    run_steps_here(log.delete_before(1))
    log.close()
    before = values(log)
    rebuild(disk, DIRECTORY)
    assert not [path for path in disk.paths() if path.suffix in (".index", ".timeindex", ".producers")]
    log = reopen(disk, SMALL)
    assert values(log) == before and log.start_offset == 1
    assert [each.producer_id for each in log.producers.all()] == [7]


# --- take back what was cut


def cut(disk: SimulatedDisk) -> Log:
    """Damage the second batch of a log that was not synced, and let recovery cut there."""
    overwrite(disk, segment(0), 512, bytes(512))
    return reopen(disk, SMALL)


def not_synced() -> SimulatedDisk:
    disk, log = open_simulated(SMALL)
    append(log, *map(batch, NAMES))
    return disk


def test_what_was_cut_returns_to_its_offsets_but_for_the_damaged_batch() -> None:
    disk = not_synced()
    log = cut(disk)
    assert values(log) == NAMES[:1]
    log.close()
    cuts = find_cuts(disk, DIRECTORY)
    assert [each.fits for each in cuts] == [True] * 4 and sum(each.records for each in cuts) == 5
    readopt(disk, DIRECTORY, cuts)
    salvage(disk, examine_log(disk, DIRECTORY))
    log = reopen(disk, SMALL)
    assert values(log) == [NAMES[0], *NAMES[2:]] and log.end_offset == 7
    assert find_cuts(disk, DIRECTORY) == []


def test_what_was_cut_can_be_written_again_where_its_offsets_are_taken() -> None:
    disk = not_synced()
    log = cut(disk)
    append(log, batch("new"))
    log.close()
    cuts = find_cuts(disk, DIRECTORY)
    assert [each.fits for each in cuts] == [False] * 4
    assert append_again(disk, DIRECTORY, SMALL, cuts, now_ms=1) == (5, 0)
    assert values(reopen(disk, SMALL)) == [NAMES[0], "new", *NAMES[2:]]
    assert find_cuts(disk, DIRECTORY) == []


def test_records_of_transactions_are_not_written_again() -> None:
    disk, log = open_simulated()
    append(log, batch("a" * 300), batch("b" * 1000), idempotent(7, 0, "t", transactional=True), idempotent(8, 0, "i"))
    log = cut(disk)
    append(log, batch("new"))
    log.close()
    assert append_again(disk, DIRECTORY, SMALL, find_cuts(disk, DIRECTORY), now_ms=1) == (1, 1)
    assert values(reopen(disk)) == ["a" * 300, "new", "i"]
