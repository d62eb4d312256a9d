"""What opening does after a crash: the torn end is cut and kept aside, rot is reported, nothing good goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.storage.batches import (
    DIRECTORY,
    append,
    batch,
    checkpoint,
    open_simulated,
    reopen,
    settings,
    sync,
    values,
)

from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import CorruptLog, FileVanished
from flymq.record.header import assign
from flymq.storage.recovery.checkpoint import CHECKPOINT_NAME, CLEAN_NAME
from flymq.storage.segments.segment import segment_name

FIRST = DIRECTORY / segment_name(0, ".log")
SMALL = settings(segment_bytes=1024)


def test_a_batch_cut_off_in_the_middle_is_taken_off_and_kept_aside() -> None:
    disk, log = open_simulated()
    append(log, batch("a"), batch("b"))
    size = log.size
    disk.open_existing(FIRST).truncate(size - 10)
    log = reopen(disk)
    assert values(log) == ["a"]
    assert log.recovery.cut_at == (FIRST, len(batch("a")))
    (aside,) = log.recovery.kept_aside
    assert disk.size(aside) == len(batch("b")) - 10 == log.recovery.cut_bytes
    assert append(log, batch("c")) == [1]


def test_a_few_bytes_of_a_batch_are_cut_off_too() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    disk.open_existing(FIRST).append([b"\0\0\0"])
    assert values(reopen(disk)) == ["a"]


def test_a_lost_sector_is_a_torn_write_even_with_good_batches_behind() -> None:
    disk, log = open_simulated()
    append(log, batch("a" * 400), batch("b" * 2000), batch("c"))
    file, raw = disk.open_existing(FIRST), disk.read(FIRST)
    file.truncate(0)
    file.append([raw[:1024], bytes(512), raw[1536:]])
    log = reopen(disk)
    assert values(log) == ["a" * 400]
    assert log.recovery.cut_bytes == len(raw) - len(batch("a" * 400))


def test_a_tail_of_zeros_is_a_torn_write() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    disk.open_existing(FIRST).append([bytes(5000)])
    log = reopen(disk)
    assert values(log) == ["a"]
    assert log.recovery.cut_bytes == 5000


def zero_sector(disk: SimulatedDisk, path: Path, sector: int) -> None:
    file, raw = disk.open_existing(path), disk.read(path)
    file.truncate(0)
    file.append([raw[: sector * 512], bytes(512), raw[(sector + 1) * 512 :]])


def test_a_flipped_bit_in_a_batch_full_of_zeros_is_no_torn_write() -> None:
    disk, log = open_simulated()
    append(log, batch("a"), batch(*["\0" * 3000] * 20), batch("c"))
    disk.flip_bit(FIRST, len(batch("a")) + 40_000)
    with pytest.raises(CorruptLog, match=f"{FIRST} at byte {len(batch('a'))}"):
        reopen(disk)
    assert not any(".cut-" in path.name for path in disk.paths())


def test_a_zeroed_sector_in_what_was_synced_is_reported_and_nothing_is_cut() -> None:
    disk, log = open_simulated()
    append(log, batch("a" * 400), batch("b" * 2000), batch("c"))
    sync(log)
    append(log, batch("d"))
    zero_sector(disk, FIRST, 2)
    with pytest.raises(CorruptLog, match=f"{FIRST} at byte {len(batch('a' * 400))}"):
        reopen(disk)
    assert not any(".cut-" in path.name for path in disk.paths())


def test_a_zeroed_sector_behind_what_was_synced_is_a_torn_write() -> None:
    disk, log = open_simulated()
    append(log, batch("a" * 400))
    sync(log)
    append(log, batch("b" * 2000), batch("c"))
    zero_sector(disk, FIRST, 2)
    log = reopen(disk)
    assert values(log) == ["a" * 400] and log.recovery.kept_aside


def test_synced_batches_that_are_missing_at_the_end_are_reported() -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 300)] * 5)
    sync(log)
    disk.open_existing(FIRST).truncate(len(batch("x" * 300)))
    with pytest.raises(CorruptLog, match="end at offset 1, but records up to 5 were on the disk"):
        reopen(disk, SMALL)
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 300)] * 5)
    sync(log)
    disk.remove(DIRECTORY / segment_name(4, ".log"))
    with pytest.raises(CorruptLog, match="end at offset 4, but records up to 5 were on the disk"):
        reopen(disk, SMALL)


def test_a_log_whose_only_segment_is_gone_is_not_taken_for_a_new_one() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    sync(log)
    disk.remove(FIRST)
    with pytest.raises(CorruptLog, match="end at offset 0, but records up to 1 were on the disk"):
        reopen(disk)


def test_a_truncated_log_does_not_miss_what_was_synced_before() -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 300)] * 5)
    sync(log)
    log.truncate(3)
    assert reopen(disk, SMALL).end_offset == 3


def test_a_sync_point_that_runs_after_a_truncation_does_not_note_what_is_gone() -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 300)] * 5)
    point = log.begin_sync()
    log.truncate(3)
    point.run()
    log.end_sync(point)
    assert reopen(disk, SMALL).end_offset == 3


def test_damage_in_the_middle_is_reported_and_what_lies_behind_stays() -> None:
    disk, log = open_simulated()
    append(log, batch("a"), batch("b"), batch("c"))
    position, size = len(batch("a")), log.size
    disk.flip_bit(FIRST, position + 62)
    for _ in range(2):  # and it does not help to try again
        with pytest.raises(CorruptLog, match=f"{FIRST} at byte {position}: checksum mismatch"):
            reopen(disk)
        assert disk.size(FIRST) == size


def test_damage_at_the_end_of_a_segment_with_others_behind_is_reported() -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 600)] * 3)
    disk.flip_bit(FIRST, 100)
    with pytest.raises(CorruptLog, match=f"{FIRST} at byte 0"):
        reopen(disk)
    assert len([path for path in disk.paths() if path.suffix == ".log"]) == 3


@pytest.mark.parametrize("bit", range(3))
def test_a_wrong_length_at_the_end_of_a_segment_with_others_behind_is_reported(bit: int) -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 600)] * 3)
    disk.flip_bit(FIRST, 10, bit)
    with pytest.raises(CorruptLog):
        reopen(disk)


def test_damage_found_after_an_orderly_end_is_reported_by_the_read_that_meets_it() -> None:
    disk, log = open_simulated(settings(index_interval_bytes=0))
    append(log, batch("a"), batch("b"), batch("c"))
    log.close()
    position = len(batch("a"))
    disk.flip_bit(FIRST, position + 62)
    log = reopen(disk, settings(index_interval_bytes=0))
    assert log.recovery.clean
    for offset, is_good in ((0, True), (1, False), (2, True), (1, False)):
        if is_good:
            assert log.read(offset, bytes_max=1) is not None
        else:
            with pytest.raises(CorruptLog, match=f"{FIRST} at byte {position}"):
                log.read(offset, bytes_max=1)
    with pytest.raises(CorruptLog):
        log.read(0, bytes_max=1 << 20)


def test_a_segment_that_lost_its_whole_tail_takes_those_behind_it_along() -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 300)] * 5)
    disk.open_existing(FIRST).truncate(len(batch("x" * 300)))
    log = reopen(disk, SMALL)
    assert log.end_offset == 1
    assert sorted(path.name for path in log.recovery.kept_aside) == [
        segment_name(2, ".log.cut-0"),
        segment_name(4, ".log.cut-0"),
    ]
    assert append(log, batch("y")) == [1]


def test_what_was_kept_aside_goes_when_retention_passes_it() -> None:
    disk, log = open_simulated(SMALL)
    append(log, batch("x" * 600), batch("x" * 600))
    disk.open_existing(DIRECTORY / segment_name(1, ".log")).truncate(30)
    log = reopen(disk, SMALL)
    (aside,) = log.recovery.kept_aside
    append(log, *[batch("x" * 600)] * 3)
    run_steps_here(log.delete_before(log.end_offset))
    assert not disk.exists(aside)


def test_a_marker_of_an_orderly_end_that_no_longer_fits_is_not_believed() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    log.close()
    clean = disk.read(DIRECTORY / CLEAN_NAME)
    log = reopen(disk)
    append(log, batch("b"))
    disk.open(DIRECTORY / CLEAN_NAME).append([clean])
    log = reopen(disk)
    assert not log.recovery.clean
    assert values(log) == ["a", "b"]


def test_a_lost_checkpoint_costs_a_scan_and_nothing_else() -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 600)] * 4)
    log.close()
    disk.remove(DIRECTORY / CHECKPOINT_NAME)
    disk.remove(DIRECTORY / CLEAN_NAME)
    log = reopen(disk, SMALL)
    assert len(values(log)) == 4
    assert log.recovery.scanned_bytes == log.size


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_segment_that_vanished_is_noticed(which: int) -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 600)] * 3)
    log.close()
    disk.remove(log.segments[which].path)
    if which == 0:  # retention would have noted the new start
        with pytest.raises(FileVanished, match="the records before offset 1 are missing"):
            reopen(disk, SMALL)
    elif which == 1:
        log = reopen(disk, SMALL)
        assert log.read(0, bytes_max=1) is not None
        with pytest.raises(FileVanished, match="batches before offset 2 are missing"):
            log.read(1, bytes_max=1)
        assert log.failure is not None
    else:
        with pytest.raises(FileVanished, match="begins at offset 2"):
            reopen(disk, SMALL)


def test_a_directory_whose_segments_all_vanished_is_not_begun_anew() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    log.close()
    disk.remove(FIRST)
    with pytest.raises(FileVanished):
        reopen(disk)


def test_a_file_shorter_than_its_checkpoint_says_is_reported() -> None:
    disk, log = open_simulated()
    append(log, batch("a"), batch("b"))
    checkpoint(log)
    disk.open_existing(FIRST).truncate(len(batch("a")))
    with pytest.raises(CorruptLog, match="was known to be on the disk"):
        reopen(disk)


def test_an_offset_that_goes_back_is_reported_though_its_checksum_is_right() -> None:
    disk, log = open_simulated()
    append(log, batch("a"), batch("b"), batch("c"))
    raw = bytearray(disk.read(FIRST))
    assign(raw, 2 * len(batch("a")), base_offset=1, leader_epoch=0)
    file = disk.open_existing(FIRST)
    file.truncate(0)
    file.append([raw])
    with pytest.raises(CorruptLog, match="its offsets begin at 1, the ones before it end at 2"):
        reopen(disk)


def test_indexes_are_built_again_when_they_are_missing_or_of_another_age() -> None:
    config = settings(segment_bytes=1024, index_interval_bytes=100)
    disk, log = open_simulated(config)
    append(log, *[batch("x" * 100)] * 30)
    log.close()
    indexes = [path for path in disk.paths() if path.suffix in (".index", ".timeindex")]
    assert len(indexes) >= 6
    old = disk.read(indexes[0])
    for number, path in enumerate(indexes):
        disk.remove(path)
        if number % 2:
            disk.open(path).append([old])
    log = reopen(disk, config)
    assert len(values(log)) == 30
    assert log.read(25, bytes_max=1) is not None
    assert run_steps_here(log.find_latest_time()) is not None


def test_a_full_disk_does_not_keep_a_reader_from_an_index_that_must_be_built_again() -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 600)] * 3)
    log.close()
    disk.remove(FIRST.with_suffix(".index"))
    log = reopen(disk, SMALL)
    disk.bytes_free = 0
    assert log.read(0, bytes_max=1) is not None


PREPARES_NOTHING = """
import sys
from flymq.storage.producers.aborted_transactions import AbortedMark
from flymq.storage.producers.producer_state import Producers
from flymq.storage.producers.snapshot import encode_snapshot, parse_snapshot
from flymq.storage.recovery.checkpoint import Checkpoint, CleanMarker, Compacted
from flymq.storage.recovery.checksummed_note import encode_note, parse_note

called = set()
sys.setprofile(lambda frame, event, argument: called.add(frame.f_code.co_name))
for fact in (Checkpoint(1, 2, 3), CleanMarker(1, 2, 3), Compacted(1, 2)):
    assert parse_note(encode_note(fact), type(fact)) == fact
assert parse_snapshot(encode_snapshot(Producers(), AbortedMark(3, 4))) is not None
sys.setprofile(None)
assert "parse_snapshot" in called
assert "get_class_annotations" not in called, "msgspec prepares a struct on first use"
"""


def test_threads_that_open_logs_prepare_no_struct_on_first_use() -> None:
    """Two threads that do so at the same moment crash the interpreter: it must have been done at import."""
    subprocess.run([sys.executable, "-c", PREPARES_NOTHING], check=True)
