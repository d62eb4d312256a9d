"""Group commit: many appends share a round of fsyncs, and a failed one ends it all."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.unit.storage.batches import DIRECTORY, NOW_MS, append, batch, open_simulated, reopen, settings, values

from flymq.host.disk import SystemDisk
from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import InlineThreads, SystemThreads, Tasks
from flymq.model.errors import DiskFull, FsyncFailed, NotLeader
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log
from flymq.storage.recovery.open_log import open_log
from flymq.storage.sync_point import SyncPoint

T = TypeVar("T")


class GatedThreads:
    """Threads whose work waits until the test lets it go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.arrived = asyncio.Event()

    async def run(self, work: Callable[[], T]) -> T:
        self.arrived.set()
        await self.gate.wait()
        return work()

    def close(self) -> None:
        pass


class Stand:
    """A flusher and what it reports."""

    def __init__(self, threads: InlineThreads | SystemThreads | GatedThreads | None = None) -> None:
        self.failed_tasks: list[BaseException] = []
        self.fatal: list[FsyncFailed] = []
        self.tasks = Tasks(lambda name, error: self.failed_tasks.append(error))
        self.flusher = Flusher(threads or InlineThreads(), self.tasks, self.fatal.append)


async def test_appends_that_come_while_a_round_runs_share_the_next_one() -> None:
    _, log = open_simulated()
    threads = GatedThreads()
    stand = Stand(threads)
    append(log, batch("first"))
    first = stand.flusher.durable(log, log.end_offset)
    await threads.arrived.wait()
    others = []
    for _ in range(100):
        append(log, batch("more"))
        others.append(stand.flusher.durable(log, log.end_offset))
    assert not first.done()
    threads.gate.set()
    await asyncio.gather(first, *others)
    assert stand.flusher.rounds == 2
    assert log.durable_offset == 101


async def test_what_is_durable_already_costs_no_round() -> None:
    _, log = open_simulated()
    stand = Stand()
    append(log, batch("a"))
    await stand.flusher.durable(log, 1)
    assert stand.flusher.durable(log, 1).done()
    assert stand.flusher.rounds == 1


async def test_many_logs_share_a_round() -> None:
    disk = SimulatedDisk()
    logs = [open_log(disk, DIRECTORY.with_name(str(number)), settings()) for number in range(20)]
    stand = Stand()
    for log in logs:
        append(log, batch("a"))
    await asyncio.gather(*(stand.flusher.durable(log, 1) for log in logs))
    assert stand.flusher.rounds == 1
    assert [log.durable_offset for log in logs] == [1] * 20


async def test_a_waiter_that_has_gone_does_not_disturb_the_others() -> None:
    _, log = open_simulated()
    threads = GatedThreads()
    stand = Stand(threads)
    append(log, batch("a"))
    gone, patient = stand.flusher.durable(log, 1), stand.flusher.durable(log, 1)
    gone.cancel()
    threads.gate.set()
    await patient
    assert stand.failed_tasks == []


async def test_a_failed_fsync_is_reported_once_and_fails_everyone_who_waits() -> None:
    disk, log = open_simulated()
    other = open_log(disk, DIRECTORY.with_name("1"), settings())
    threads = GatedThreads()
    stand = Stand(threads)
    append(log, batch("a"))
    append(other, batch("b"))
    disk.fail_next("sync", str(DIRECTORY), errno.EIO)
    disk.fail_next("sync", str(other.directory), errno.EIO)
    waiting = [stand.flusher.durable(log, 1), stand.flusher.durable(other, 1)]
    await threads.arrived.wait()
    append(log, batch("c"))
    waiting.append(stand.flusher.durable(log, 2))
    threads.gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [FsyncFailed] * 3
    assert len(stand.fatal) == 1
    with pytest.raises(FsyncFailed):
        await stand.flusher.durable(log, 2)
    assert log.durable_offset == other.durable_offset == 0
    assert log.failure is not None


async def test_a_failed_fsync_of_one_log_does_not_fail_the_appends_of_another() -> None:
    disk, log = open_simulated()
    other = open_log(disk, DIRECTORY.with_name("1"), settings())
    stand = Stand()
    append(log, batch("a"))
    append(other, batch("b"))
    disk.fail_next("sync", str(DIRECTORY), errno.EIO)
    failed, fine = stand.flusher.durable(log, 1), stand.flusher.durable(other, 1)
    with pytest.raises(FsyncFailed):
        await failed
    await fine
    assert other.durable_offset == 1


async def test_who_waits_for_what_was_truncated_is_told_so() -> None:
    _, log = open_simulated()
    threads = GatedThreads()
    stand = Stand(threads)
    append(log, batch("a"), batch("b"))
    before = stand.flusher.durable(log, 2)
    await threads.arrived.wait()
    waiting = stand.flusher.durable(log, 2)
    log.truncate(1)
    append(log, batch("c"), batch("d"))  # other batches now have these offsets
    after = stand.flusher.durable(log, 3)
    threads.gate.set()
    for told in (before, waiting):
        with pytest.raises(NotLeader, match="truncated"):
            await told
    await after
    assert log.durable_offset == 3


async def test_nobody_waits_for_ever_when_the_broker_stops() -> None:
    _, log = open_simulated()
    threads = GatedThreads()
    stand = Stand(threads)
    append(log, batch("a"))
    waiting = [stand.flusher.durable(log, 1)]
    await threads.arrived.wait()
    waiting.append(stand.flusher.durable(log, 1))
    await stand.tasks.close()
    assert all(future.cancelled() for future in waiting)


async def test_a_checkpoint_spares_the_next_opening_the_scan() -> None:
    disk, log = open_simulated()
    stand = Stand()
    append(log, batch("a"))
    await stand.flusher.checkpoint(log)
    assert log.durable_offset == 1
    await stand.flusher.checkpoint(log)  # nothing has changed
    assert reopen(disk).recovery.scanned_bytes == 0


async def test_a_checkpoint_that_finds_no_room_is_written_when_there_is_some() -> None:
    disk, log = open_simulated()
    stand = Stand()
    append(log, batch("a"))
    disk.bytes_free = 0
    with pytest.raises(DiskFull):
        await stand.flusher.checkpoint(log)
    assert log.failure is None and stand.fatal == []
    disk.bytes_free = None
    await stand.flusher.checkpoint(log)
    assert reopen(disk).recovery.scanned_bytes == 0


async def test_appends_that_found_no_room_for_the_epoch_of_their_leader_are_durable_when_there_is_some() -> None:
    disk, log = open_simulated()
    stand = Stand()
    append(log, batch("a"))
    await stand.flusher.durable(log, 1)
    log.begin_epoch(1)
    log.append(batch("b"), leader_epoch=1, now_ms=NOW_MS)
    disk.bytes_free = 0
    with pytest.raises(DiskFull):
        await stand.flusher.durable(log, 2)
    assert log.failure is None and stand.fatal == []
    disk.bytes_free = None
    await stand.flusher.durable(log, 2)
    disk.cut_power()
    assert reopen(disk).end_offset == 2


async def test_a_failed_fsync_in_a_checkpoint_is_fatal_too() -> None:
    disk, log = open_simulated()
    stand = Stand()
    append(log, batch("a"))
    disk.fail_next("sync", "checkpoint", errno.EIO)
    with pytest.raises(FsyncFailed):
        await stand.flusher.checkpoint(log)
    assert len(stand.fatal) == 1


async def test_real_threads_and_a_real_disk_share_rounds(tmp_path: Path) -> None:
    log = open_log(SystemDisk(), tmp_path / "0", settings())
    threads = SystemThreads("flush")
    stand = Stand(threads)

    async def produce(count: int) -> None:
        for _ in range(count):
            append(log, batch("a"))
            await stand.flusher.durable(log, log.end_offset)

    await asyncio.gather(*(produce(10) for _ in range(20)))
    threads.close()
    assert log.durable_offset == 200
    assert stand.flusher.rounds < 100


def test_syncs_and_checkpoints_in_many_threads_agree_with_the_loop(tmp_path: Path) -> None:
    log = open_log(SystemDisk(), tmp_path / "0", settings(segment_bytes=1024))
    running: list[tuple[SyncPoint, threading.Thread]] = []

    def in_thread(log: Log) -> None:
        point = log.begin_checkpoint() if len(running) % 3 == 0 else log.begin_sync()
        if point is not None:
            running.append((point, threading.Thread(target=point.run)))
            running[-1][1].start()

    for number in range(60):
        append(log, batch(f"{number}" * 50))
        in_thread(log)
        if number % 20 == 19:
            log.truncate(log.end_offset - 5)
    for point, thread in running:
        thread.join()
        log.end_sync(point)
    before = values(log)
    assert values(open_log(SystemDisk(), tmp_path / "0", log.config)) == before
