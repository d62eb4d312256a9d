"""A bit flips in one of a log's files: what is damaged is never served, what is good is never thrown away."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.property.storage.log_model import Batch, LogBesideList, open_beside_list, random_step, split

from flymq.host.simulated_disk import SimulatedDisk
from flymq.model.errors import CorruptLog
from flymq.storage.log import Log
from flymq.storage.recovery.checkpoint import CHECKPOINT_NAME
from flymq.storage.recovery.open_log import open_log
from flymq.storage.segments.segment import DATA_SUFFIX

SEEDS = int(os.environ.get("FLYMQ_CRASH_SEEDS", "100"))
STEPS = 60
DIRECTORY = Path("/data/topics/orders/0")
BASE_OFFSET_BYTES = range(8)  # not under the checksum, but offsets must rise
LEADER_EPOCH_BYTES = range(12, 16)  # not under the checksum, and nothing it must agree with


def write_log(seed: int, chance: random.Random) -> tuple[SimulatedDisk, LogBesideList]:
    """Write a log of many segments and end it in order, in mid-checkpoint or without a word."""
    disk = SimulatedDisk(seed)
    both = open_beside_list(disk, DIRECTORY)
    for _ in range(STEPS):
        random_step(both, chance, keep_start=seed % 2 == 0)
    for _ in range(3):
        both.append(records=2, value_bytes=100)
    both.finish_pending()
    if chance.random() < 0.5:
        both.log.close()
    return disk, both


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_flipped_bit_in_a_batch_is_reported_and_good_batches_stay(seed: int) -> None:
    chance = random.Random(seed)
    disk, both = write_log(seed, chance)
    batches = both.held()
    which = chance.randrange(len(batches))
    damaged = batches[which]
    path, position = place(both, damaged)
    byte = chance.choice((chance.randrange(24), chance.randrange(len(damaged.data))))
    if byte in LEADER_EPOCH_BYTES or (byte in BASE_OFFSET_BYTES and is_beside_gap(both, damaged)):
        return
    disk.flip_bit(path, position + byte, chance.randrange(8))

    try:
        log = open_log(disk, DIRECTORY, both.log.config)
    except CorruptLog as error:
        assert str(path) in error.message
        assert "at byte" in error.message
        return
    is_last = which == len(batches) - 1
    if log.end_offset < both.log.end_offset:  # cut off as if torn: nothing lay behind it
        assert is_last
        assert log.end_offset == damaged.header.base_offset
        assert log.recovery.kept_aside
    if log.end_offset > both.log.end_offset:  # the base offset of the very last batch has nothing to be compared with
        assert is_last
        assert byte in BASE_OFFSET_BYTES
        return
    assert_nothing_damaged_is_served(log, both, damaged, path)


def assert_nothing_damaged_is_served(log: Log, both: LogBesideList, damaged: Batch, path: Path) -> None:
    good = {batch.data for batch in both.batches if batch is not damaged}
    for batch in both.held():
        offset = max(batch.header.base_offset, log.start_offset)
        if offset >= log.end_offset:
            continue
        try:
            found = log.read(offset, bytes_max=1)
        except CorruptLog as error:
            assert str(path) in error.message
            assert "at byte" in error.message
            continue
        assert batch is not damaged, "damage was served, or passed over in silence"
        assert found is not None
        assert [each.data for each in split(found.read())] == [batch.data]
        assert batch.data in good


def place(both: LogBesideList, batch: Batch) -> tuple[Path, int]:
    """Where a batch lies."""
    assert isinstance(both.log, Log)
    for segment in both.log.segments:
        for position, header in segment.walk(0, segment.size):
            if header.base_offset == batch.header.base_offset:
                return segment.path, position
    raise AssertionError("the log does not hold the batch")


def is_beside_gap(both: LogBesideList, batch: Batch) -> bool:
    """Whether the batch could have another offset without anyone being able to tell."""
    ends = [each.header.next_offset for each in both.batches]
    following = [each.header.base_offset for each in both.batches if each.header.base_offset > batch.header.base_offset]
    has_gap_before = batch.header.base_offset not in (0, *ends)
    return has_gap_before or (bool(following) and min(following) != batch.header.next_offset)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_flipped_bit_in_any_other_file_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    disk, both = write_log(seed, chance)
    others = [path for path in disk.paths() if path.suffix != DATA_SUFFIX and disk.size(path)]
    path = chance.choice(others)
    for _ in range(chance.choice((1, 1, 1, 5)) if path.suffix else 1):
        disk.flip_bit(path, chance.randrange(disk.size(path)), chance.randrange(8))
    start_offset, end_offset = both.log.start_offset, both.log.end_offset
    both.log = open_log(disk, DIRECTORY, both.log.config)
    assert (both.log.start_offset, both.log.end_offset) == (start_offset, end_offset)
    # A damaged snapshot is replaced by an older one or by the log itself, which may have forgotten some producers.
    both.may_forget |= path.suffix in (".producers", ".aborted") and start_offset > 0
    both.recall()
    both.check()
    both.check_time(both.now_ms - chance.randrange(20_000))
    both.append(records=2)
    both.close_and_reopen()
    both.check()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_to_synced_bytes_they_are_never_taken_for_torn(seed: int) -> None:
    chance = random.Random(seed)
    disk, both = write_log(seed, chance)
    assert isinstance(both.log, Log)
    durable = both.log.durable_offset
    synced = [each for each in both.held() if each.header.next_offset <= durable]
    if not synced:
        return
    batch = chance.choice(synced)
    path, position = place(both, batch)
    damage(disk, path, position, len(batch.data), chance)
    try:
        log = open_log(disk, DIRECTORY, both.log.config)
    except CorruptLog as error:
        assert str(DIRECTORY) in error.message
    else:
        assert log.end_offset >= durable


def damage(disk: SimulatedDisk, path: Path, position: int, size: int, chance: random.Random) -> None:
    """Zero sectors, write garbage, or cut the file, from within a batch on."""
    raw, file = bytearray(disk.read(path)), disk.open_existing(path)
    at = position + chance.randrange(size)
    kind = chance.choice(("zeros", "garbage", "cut"))
    if kind == "zeros":
        start = at // 512 * 512
        raw[start : start + 512] = bytes(len(raw[start : start + 512]))
    elif kind == "garbage":
        raw[at : at + 16] = chance.randbytes(len(raw[at : at + 16]))
    else:
        del raw[at:]
    file.truncate(0)
    file.append([bytes(raw)])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_other_file_that_is_gone_is_made_again(seed: int) -> None:
    chance = random.Random(seed)
    disk, both = write_log(seed, chance)
    path = chance.choice([path for path in disk.paths() if path.suffix != DATA_SUFFIX])
    disk.remove(path)
    start_offset, end_offset = both.log.start_offset, both.log.end_offset
    both.log = open_log(disk, DIRECTORY, both.log.config)
    assert both.log.end_offset == end_offset
    if path.name != CHECKPOINT_NAME:
        assert both.log.start_offset == start_offset
