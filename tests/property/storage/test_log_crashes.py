"""The power goes at any byte of any write and between any two operations; what was promised is there afterwards."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest
from tests.property.storage.log_model import LogBesideList, open_beside_list, random_step

from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.storage.log import Log
from flymq.storage.recovery.open_log import open_log

SEEDS = int(os.environ.get("FLYMQ_CRASH_SEEDS", "100"))
LIVES = 4
STEPS = 60
DIRECTORY = Path("/data/topics/orders/0")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_power_cut_leaves_a_prefix_with_all_that_was_synced(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    both = open_beside_list(disk, DIRECTORY)
    for _ in range(LIVES):
        disk.bytes_until_cut = chance.choice((200, 2_000, 10_000)) + chance.randrange(5_000)
        with suppress(PowerCut):
            for _ in range(STEPS):
                random_step(both, chance, keep_start=seed % 2 == 0)
        start_offset = both.log.start_offset
        disk.cut_power()
        compare_after_crash(both, reopen_through_crashes(disk, chance, both), start_offset)
        both.check()
        both.check_time(both.now_ms - chance.randrange(20_000))


def reopen_through_crashes(disk: SimulatedDisk, chance: random.Random, both: LogBesideList) -> Log:
    """Open the log; now and then the power goes during that, too."""
    while chance.random() < 0.4:
        disk.bytes_until_cut = chance.randrange(60)
        with suppress(PowerCut):
            open_log(disk, DIRECTORY, both.log.config)
        disk.cut_power()
    return open_log(disk, DIRECTORY, both.log.config)


def compare_after_crash(both: LogBesideList, log: Log, start_offset: int) -> None:
    """Check what came back against what was promised, and take it over."""
    promised, truncating_to = both.log.durable_offset, both.truncating_to
    if truncating_to is not None:
        kept = [b.header.next_offset for b in both.batches if b.header.last_offset < truncating_to]
        promised = min(promised, max(kept, default=0))
    assert log.end_offset >= promised
    assert both.deleted_before <= log.start_offset <= max(start_offset, both.deleting_before or 0)
    both.batches = [b for b in both.batches + both.in_flight if b.header.next_offset <= log.end_offset]
    end_offset = both.batches[-1].header.next_offset if both.batches else 0
    assert log.end_offset in (end_offset, log.start_offset)
    assert log.durable_offset == log.end_offset
    both.deleted_before = log.start_offset
    if truncating_to is not None:
        both.forget_epochs_from(end_offset)
    both.in_flight, both.truncating_to, both.deleting_before = [], None, None
    both.pending.clear()
    both.log = log
    both.may_forget |= truncating_to is not None and log.start_offset > 0
    both.recall()
    both.recall_epochs()
