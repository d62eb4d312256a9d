"""Which leader wrote what is known after any crash, and noting it costs the event loop no fsync."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.storage.batches import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    checkpoint,
    open_simulated,
    reopen,
    settings,
    sync,
)

from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.host.tasks import InlineThreads, Tasks
from flymq.model.errors import FencedLeaderEpoch, InvalidBatch, UnknownLeaderEpoch
from flymq.model.topic_config import TopicConfig
from flymq.record.header import assign
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log
from flymq.storage.memory_log import MemoryLog

EPOCHS_FILE = DIRECTORY / "leader-epochs"


def write(log: Log | MemoryLog, leader_epoch: int, *values: str) -> None:
    """Append a batch as the leader of this epoch."""
    log.append(batch(*(values or ("x",))), leader_epoch=leader_epoch, now_ms=NOW_MS)


def fetched(offset: int, leader_epoch: int, *values: str) -> bytes:
    """A batch as a follower gets it from its leader."""
    copied = bytearray(batch(*(values or ("x",))))
    assign(copied, 0, base_offset=offset, leader_epoch=leader_epoch)
    return bytes(copied)


# --- no fsync on the loop


def test_the_first_write_under_a_new_epoch_syncs_nothing_itself() -> None:
    disk, log = open_simulated()
    write(log, 0)
    sync(log)
    before = disk.syncs
    write(log, 1)
    log.begin_epoch(2)
    write(log, 3)
    assert disk.syncs == before
    assert log.epochs.starts == [(0, 0), (1, 1), (2, 2), (3, 2)]


def test_retention_syncs_nothing_on_the_loop() -> None:
    disk, log = open_simulated(settings(segment_bytes=1024, retention_bytes=0))
    for epoch in range(4):
        write(log, epoch, "x" * 900)
    checkpoint(log)
    before = disk.syncs
    removal = log.retain(NOW_MS)
    assert removal is not None
    assert disk.syncs == before


def test_an_epoch_without_records_costs_one_sync_of_the_file_and_one_of_the_directory() -> None:
    disk, log = open_simulated()
    write(log, 0)
    checkpoint(log)
    log.begin_epoch(1)
    log.begin_epoch(2)
    before = disk.syncs
    sync(log)
    assert disk.syncs == before + 2
    sync(log)
    assert disk.syncs == before + 2


def test_an_epoch_that_wrote_costs_a_round_nothing_but_the_data() -> None:
    disk, log = open_simulated()
    write(log, 0)
    checkpoint(log)
    before = disk.syncs
    write(log, 1)
    sync(log)
    assert disk.syncs == before + 1


# --- crashes


def test_an_epoch_without_records_survives_a_power_cut_once_it_was_synced() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    sync(log)
    log.begin_epoch(5)
    assert not log.is_durable
    sync(log)
    assert log.is_durable
    disk.cut_power()
    assert reopen(disk).epochs.starts == [(0, 0), (5, 1)]


async def test_a_flush_waits_for_an_epoch_that_wrote_nothing() -> None:
    disk, log = open_simulated()
    flusher = Flusher(InlineThreads(), Tasks(lambda name, error: None), lambda error: None)
    write(log, 1)
    sync(log)
    log.begin_epoch(5)
    await flusher.flush(log)
    assert flusher.rounds == 1
    disk.cut_power()
    assert reopen(disk).epochs.starts == [(1, 0), (5, log.end_offset)]
    assert flusher.flush(log).done()


async def test_the_first_epoch_of_a_new_log_costs_no_sync() -> None:
    _, log = open_simulated()
    flusher = Flusher(InlineThreads(), Tasks(lambda name, error: None), lambda error: None)
    log.begin_epoch(0)
    assert log.epochs.starts == [(0, 0)]
    assert flusher.flush(log).done()
    assert flusher.rounds == 0


def test_epochs_that_wrote_are_read_from_the_headers_behind_the_checkpoint() -> None:
    disk, log = open_simulated()
    write(log, 1)
    checkpoint(log)
    write(log, 4)
    write(log, 6)
    sync(log)
    disk.cut_power()
    assert reopen(disk).epochs.starts == [(1, 0), (4, 1), (6, 2)]


@pytest.mark.parametrize("cut_after", range(60))
def test_wherever_the_power_goes_the_history_agrees_with_the_batches(cut_after: int) -> None:
    for seed in range(8):
        disk = SimulatedDisk(seed)
        log = reopen(disk)
        begun: dict[int, int] = {}
        try:
            write(log, 0)
            checkpoint(log)
            disk.bytes_until_cut = cut_after * 12
            write(log, 1)
            log.begin_epoch(2)
            sync(log)
            begun[2] = 2
            write(log, 3)
            write(log, 3)
            checkpoint(log)
            del begun[2]
            log.truncate(2)
            write(log, 5)
            write(log, 6)
            log.begin_epoch(7)
            checkpoint(log)
            begun[7] = 4
        except PowerCut:
            pass
        disk.cut_power()
        log = reopen(disk)
        offset = 0
        while (found := log.read(offset, bytes_max=1)) is not None:
            assert log.epochs.epoch_of(offset) == int.from_bytes(found.read()[12:16]), log.epochs.starts
            offset += 1
        assert begun.items() <= dict(log.epochs.starts).items()


def test_a_truncated_epoch_does_not_come_back_with_an_old_file() -> None:
    disk, log = open_simulated()
    for epoch in (1, 1, 3, 3):
        write(log, epoch)
    checkpoint(log)
    log.truncate(1)
    for epoch in (2, 2, 2, 2):
        write(log, epoch)
    sync(log)
    disk.cut_power()
    assert reopen(disk).epochs.starts == [(1, 0), (2, 1)]


def damage(disk: SimulatedDisk) -> None:
    file = disk.open_existing(EPOCHS_FILE)
    size = file.size()
    file.truncate(0)
    file.append([b"\xff" * size])


@pytest.mark.parametrize("lose", [damage, lambda disk: disk.remove(EPOCHS_FILE)], ids=["damaged", "missing"])
@pytest.mark.parametrize("end", [Log.close, lambda log: sync(log)], ids=["closed", "killed"])
def test_a_lost_file_is_rebuilt_from_the_headers(
    lose: Callable[[SimulatedDisk], None], end: Callable[[Log], None]
) -> None:
    config = settings(segment_bytes=1024)
    disk, log = open_simulated(config)
    for epoch in (1, 1, 3, 4):
        write(log, epoch, "x" * 600)
    checkpoint(log)
    write(log, 6)
    end(log)
    lose(disk)
    log = reopen(disk, config)
    assert log.epochs.starts == [(1, 0), (3, 2), (4, 3), (6, 4)]
    log.close()
    assert disk.read(EPOCHS_FILE).startswith(b"[[1,0],[3,2],[4,3],[6,4]] ")


def test_a_late_thread_does_not_replace_a_newer_file() -> None:
    disk, log = open_simulated()
    log.begin_epoch(1)
    late = log.begin_sync()
    log.begin_epoch(2)
    sync(log)
    late.run()
    log.end_sync(late)
    disk.cut_power()
    assert reopen(disk).epochs.starts == [(1, 0), (2, 0)]


# --- the history


def test_leader_epochs_tell_where_each_ended() -> None:
    _, log = open_simulated()
    for epoch, count in ((1, 2), (4, 3), (5, 1)):
        log.begin_epoch(epoch)
        for _ in range(count):
            write(log, epoch)
    ends = [log.epochs.end_of(epoch, log.end_offset) for epoch in range(7)]
    assert ends == [None, (1, 2), (1, 2), (1, 2), (4, 5), (5, 6), (5, 6)]
    log.truncate(3)
    assert log.epochs.starts == [(1, 0), (4, 2)]
    assert [log.epochs.epoch_of(offset) for offset in (0, 1, 2)] == [1, 1, 4]


@pytest.fixture(params=["disk", "memory"])
def any_log(request: pytest.FixtureRequest) -> Log | MemoryLog:
    return open_simulated()[1] if request.param == "disk" else MemoryLog("orders-0", TopicConfig())


def test_a_leader_of_an_earlier_epoch_writes_nothing(any_log: Log | MemoryLog) -> None:
    write(any_log, 3)
    any_log.begin_epoch(4)
    any_log.begin_epoch(4)
    with pytest.raises(FencedLeaderEpoch, match="epoch 4"):
        write(any_log, 3)
    with pytest.raises(FencedLeaderEpoch):
        any_log.begin_epoch(3)
    with pytest.raises(FencedLeaderEpoch):
        any_log.append_as_is(fetched(1, 3), leader_epoch=3, now_ms=NOW_MS)
    assert any_log.end_offset == 1


def test_a_follower_refuses_batches_of_a_leader_newer_than_the_one_it_fetches_from(any_log: Log | MemoryLog) -> None:
    any_log.append_as_is(fetched(0, 2), leader_epoch=3, now_ms=NOW_MS)
    with pytest.raises(UnknownLeaderEpoch, match="epoch 4"):
        any_log.append_as_is(fetched(1, 3) + fetched(2, 4), leader_epoch=3, now_ms=NOW_MS)
    assert any_log.end_offset == 1
    assert any_log.epochs.starts == [(2, 0)]


def test_a_follower_refuses_batches_whose_epochs_go_back(any_log: Log | MemoryLog) -> None:
    any_log.append_as_is(fetched(0, 2), leader_epoch=5, now_ms=NOW_MS)
    with pytest.raises(InvalidBatch, match="leader epoch 1"):
        any_log.append_as_is(fetched(1, 1), leader_epoch=5, now_ms=NOW_MS)
    with pytest.raises(InvalidBatch, match="leader epoch 3"):
        any_log.append_as_is(fetched(1, 4) + fetched(2, 3), leader_epoch=5, now_ms=NOW_MS)
    assert any_log.end_offset == 1


def test_a_follower_that_catches_up_learns_the_epochs_before_the_one_it_was_told_of(
    any_log: Log | MemoryLog,
) -> None:
    any_log.append_as_is(fetched(0, 1), leader_epoch=1, now_ms=NOW_MS)
    any_log.begin_epoch(7)
    any_log.append_as_is(fetched(1, 1) + fetched(2, 4) + fetched(3, 7), leader_epoch=7, now_ms=NOW_MS)
    assert any_log.epochs.starts == [(1, 0), (4, 2), (7, 3)]


def test_the_history_of_a_log_that_begins_later_begins_there() -> None:
    config = settings(segment_bytes=1024, retention_bytes=1500)
    disk, log = open_simulated(config)
    for epoch in range(4):
        write(log, epoch, "x" * 900)
    checkpoint(log)
    removal = log.retain(NOW_MS)
    assert removal is not None
    removal()
    disk.cut_power()
    log = reopen(disk, config)
    assert log.epochs.starts == [(2, 2), (3, 3)]
