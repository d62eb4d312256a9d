"""A full disk, and descriptors that run out: the log refuses, stays as it was, and goes on when there is room."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest
from tests.unit.storage.batches import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    committed_values,
    end_transaction,
    idempotent,
    open_simulated,
    reopen,
    settings,
    sync,
    values,
)

from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import DiskFull, OutOfOrderSequence, ResourcesExhausted, StorageError, TooManyOpenFiles
from flymq.record.control import MarkerType
from flymq.storage.log import Log

SMALL = settings(segment_bytes=1024)


def test_a_log_goes_on_after_the_disk_filled_in_mid_append() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    disk.bytes_free = 30
    for _ in range(3):
        with pytest.raises(DiskFull, match=f"{DIRECTORY}.*No space left"):
            append(log, batch("b"))
    assert values(log) == ["a"]
    disk.bytes_free = None
    assert append(log, batch("c")) == [1]
    assert values(log) == ["a", "c"]
    assert values(reopen(disk)) == ["a", "c"]


def test_a_partial_write_that_cannot_be_cut_back_is_cut_before_the_next_one() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    disk.bytes_free = 30
    disk.fail_next("truncate", ".log", errno.ENOSPC)
    with pytest.raises(DiskFull):
        append(log, batch("b"))
    disk.bytes_free = None
    append(log, batch("c"))
    assert values(log) == ["a", "c"]
    log.close()
    log = reopen(disk)
    assert log.recovery.clean and values(log) == ["a", "c"]


def test_a_torn_end_that_cannot_be_cut_for_another_reason_takes_the_log_offline() -> None:
    disk, log = open_simulated()
    disk.bytes_free = 30
    disk.fail_next("truncate", ".log", errno.EIO)
    with pytest.raises(DiskFull):
        append(log, batch("a"))
    disk.bytes_free = None
    disk.fail_next("truncate", ".log", errno.EIO)
    with pytest.raises(StorageError):
        append(log, batch("a"))
    assert log.failure is not None
    assert values(reopen(disk)) == []


def test_a_batch_that_found_no_room_is_not_remembered_as_sent() -> None:
    disk, log = open_simulated()
    append(log, idempotent(1, 0, "a"))
    disk.bytes_free = 30
    with pytest.raises(DiskFull):
        append(log, idempotent(1, 1, "b"))
    with pytest.raises(OutOfOrderSequence):
        append(log, idempotent(1, 2, "c"))
    disk.bytes_free = None
    assert append(log, idempotent(1, 1, "b"), idempotent(1, 2, "c")) == [1, 2]


@pytest.mark.parametrize("operation", ["create", "append", "truncate"])
def test_a_segment_that_cannot_be_rolled_is_rolled_later(operation: str) -> None:
    disk, log = open_simulated(SMALL)
    append(log, batch("x" * 600))
    disk.fail_next(operation, "00001.log", errno.ENOSPC)
    with pytest.raises(DiskFull):
        append(log, batch("y" * 600))
    append(log, batch("z" * 600))
    assert values(log) == ["x" * 600, "z" * 600]
    assert values(reopen(disk, SMALL)) == ["x" * 600, "z" * 600]


def test_without_a_free_descriptor_the_active_segment_serves_on_and_rolls_later() -> None:
    disk, log = open_simulated(SMALL)
    append(log, batch("x" * 600))
    disk.has_descriptors = False
    assert append(log, batch("y")) == [1]
    with pytest.raises(TooManyOpenFiles):
        append(log, batch("z" * 600))
    assert values(log) == ["x" * 600, "y"]
    disk.has_descriptors = True
    append(log, batch("z" * 600))
    assert values(reopen(disk, SMALL)) == ["x" * 600, "y", "z" * 600]


def test_a_log_of_many_segments_holds_few_files_open() -> None:
    _, log = open_simulated(SMALL)
    append(log, *[batch("x" * 600)] * 50)
    sync(log)
    assert sum(segment.is_open for segment in log.segments) < 12
    log.release_sealed()
    assert sum(segment.is_open for segment in log.segments) == 1


def test_an_abort_that_cannot_be_listed_is_honoured_and_listed_later() -> None:
    disk, log = open_simulated()
    append(log, idempotent(1, 0, "no", transactional=True))
    disk.fail_next("append", ".aborted", errno.ENOSPC)
    end_transaction(log, 1, MarkerType.ABORT)
    append(log, idempotent(1, 1, "again no", transactional=True))
    end_transaction(log, 1, MarkerType.ABORT)
    append(log, batch("yes"))
    assert committed_values(log) == ["yes"]
    disk.fail_next("append", ".aborted", errno.ENOSPC)
    with pytest.raises(DiskFull):
        checkpoint(log)
    assert committed_values(reopen(disk)) == ["yes"]
    checkpoint(log)
    assert committed_values(reopen(disk)) == ["yes"]


@pytest.mark.parametrize("free", [0, 40, 200])
def test_deleting_records_on_a_full_disk_fails_whole_and_works_later(free: int) -> None:
    disk, log = open_simulated(SMALL)
    append(log, *[batch("x" * 600)] * 4)
    disk.bytes_free = free
    with pytest.raises(DiskFull):
        run_steps_here(log.delete_before(3))
    assert log.failure is None and log.start_offset == 0
    disk.bytes_free = None
    run_steps_here(log.delete_before(3))
    assert log.start_offset == 3 and len(log.segments) == 1
    assert reopen(disk, SMALL).start_offset == 3


def test_files_that_retention_could_not_remove_are_removed_the_next_time() -> None:
    config = settings(segment_bytes=1024, retention_bytes=1000)
    disk, log = open_simulated(config)
    append(log, *[batch("x" * 600)] * 5)
    checkpoint(log)
    disk.fail_next("append", "checkpoint", errno.ENOSPC)
    removal = log.retain(NOW_MS)
    assert removal is not None
    with pytest.raises(DiskFull):
        removal()
    removal = log.retain(NOW_MS)
    assert removal is not None
    removal()
    assert log.retain(NOW_MS) is None
    assert [path.name for path in disk.paths() if path.suffix == ".log"] == [
        segment.path.name for segment in log.segments
    ]


# --- everything at once


class Story:
    """A log on a disk that fills up at any byte, and what was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.config = settings(segment_bytes=2048, retention_bytes=20_000)
        self.disk = SimulatedDisk(seed)
        self.log: Log = reopen(self.disk, self.config)
        self.acknowledged: list[str] = []
        self.number = 0

    def step(self) -> None:
        kind = self.chance.choice(["append"] * 6 + ["sync", "sync", "checkpoint", "retain", "delete", "abort", "fill"])
        with suppress(ResourcesExhausted):
            getattr(self, f"_{kind}")()
        assert self.log.failure is None

    def _append(self) -> None:
        self.number += 1
        value = f"{self.number}:" + "x" * self.chance.randrange(500)
        append(self.log, batch(value))
        self.acknowledged.append(value)

    def _sync(self) -> None:
        sync(self.log)

    def _checkpoint(self) -> None:
        checkpoint(self.log)

    def _retain(self) -> None:
        removal = self.log.retain(NOW_MS)
        if removal is not None:
            removal()

    def _delete(self) -> None:
        run_steps_here(self.log.delete_before(self.chance.randint(self.log.start_offset, self.log.end_offset)))

    def _abort(self) -> None:
        self.number += 1
        append(self.log, idempotent(self.number, 0, "aborted", transactional=True))
        while True:  # as the coordinator does
            with suppress(ResourcesExhausted):
                end_transaction(self.log, self.number, MarkerType.ABORT)
                return
            self.disk.bytes_free, self.disk.has_descriptors = None, True

    def _fill(self) -> None:
        self.disk.bytes_free = None if self.chance.random() < 0.5 else self.chance.randrange(2000)
        self.disk.has_descriptors = self.chance.random() < 0.8

    def check(self, acknowledged: list[str]) -> None:
        """What is left is the end of what was acknowledged, in order."""
        seen = committed_values(self.log)
        assert seen == acknowledged[len(acknowledged) - len(seen) :]


@pytest.mark.parametrize("seed", range(40))
def test_a_disk_that_fills_and_empties_at_any_time_loses_nothing(seed: int) -> None:
    story = Story(seed)
    for _ in range(150):
        story.step()
    story.disk.has_descriptors, story.disk.bytes_free = True, None
    story.check(story.acknowledged)
    append(story.log, batch("last"))
    story.acknowledged.append("last")
    sync(story.log)
    acknowledged = list(story.acknowledged)
    if seed % 2:
        story.disk.cut_power()
    story.log = reopen(story.disk, story.config)
    story.check(acknowledged)
    assert len(story.log.segments) < 40
