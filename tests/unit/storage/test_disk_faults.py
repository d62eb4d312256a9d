"""What the disk refuses: a named error, the partition offline, the others alive, nothing acknowledged lost."""

import errno
import subprocess
import sys

import pytest
from tests.unit.storage.logs import DIRECTORY, append, small_log, values

from flymq.host.disk import SystemDisk
from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import InlineThreads, Tasks
from flymq.model.errors import (
    DirectoryLocked,
    DiskFull,
    DiskPermissionDenied,
    FileVanished,
    FsyncFailed,
    PartitionOffline,
)
from flymq.storage.flusher import Flusher


def test_a_full_disk_takes_one_partition_offline_and_nothing_acknowledged_is_lost():
    disk = SimulatedDisk()
    full, other = small_log(disk), small_log(disk, DIRECTORY.with_name("t-1"))
    append(full, b"kept")
    disk.bytes_free = 30
    with pytest.raises(DiskFull, match="No space left"):
        append(full, b"lost")
    disk.bytes_free = None
    with pytest.raises(PartitionOffline, match="No space left"):
        append(full, b"refused")
    assert values(full) == [b"kept"]
    assert append(other, b"lives on") == 0
    again = small_log(disk)
    assert values(again) == [b"kept"]
    assert append(again, b"goes on") == 1


def test_a_write_that_is_not_permitted_is_named():
    disk = SimulatedDisk()
    log = small_log(disk)
    disk.fail_next("append", ".log", errno.EACCES)
    with pytest.raises(DiskPermissionDenied):
        append(log, b"x")
    with pytest.raises(PartitionOffline):
        append(log, b"x")


def test_a_vanished_segment_takes_the_partition_offline():
    disk = SimulatedDisk()
    log = small_log(disk)
    for _ in range(40):
        append(log, b"x" * 50)
    log.close()
    log = small_log(disk)
    disk.remove(log.segments[1].path)
    with pytest.raises(FileVanished):
        values(log)
    with pytest.raises(PartitionOffline):
        append(log, b"x")


def test_a_directory_in_use_by_another_process_is_refused_until_that_ends(tmp_path):
    program = (
        "import sys; from pathlib import Path; from flymq.host.disk import SystemDisk;"
        "lock = SystemDisk().lock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "lock"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryLocked, match=f"in use by process {other.pid}"):
            SystemDisk().lock(path)
        other.communicate("")
    SystemDisk().lock(path).release()


def unexpected(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


async def test_appends_that_wait_together_share_their_fsyncs():
    log = small_log(SimulatedDisk())
    flusher = Flusher(InlineThreads(), Tasks(unexpected), lambda error: None)
    waiting = []
    for number in range(20):
        append(log, b"%d" % number)
        waiting.append(flusher.durable(log, log.end_offset))
    for future in waiting:
        await future
    assert log.durable_offset == 20
    assert flusher.rounds <= 2


async def test_who_no_longer_waits_does_not_disturb_the_others():
    log = small_log(SimulatedDisk())
    flusher = Flusher(InlineThreads(), Tasks(unexpected), lambda error: None)
    append(log, b"a")
    gone, stays = flusher.durable(log, 1), flusher.durable(log, 1)
    gone.cancel()
    await stays
    assert log.durable_offset == 1


async def test_a_failed_fsync_is_fatal_once_and_never_tried_again():
    disk = SimulatedDisk()
    log = small_log(disk)
    fatal: list[FsyncFailed] = []
    flusher = Flusher(InlineThreads(), Tasks(unexpected), fatal.append)
    append(log, b"a")
    disk.fail_next("sync", ".log", errno.EIO)
    with pytest.raises(FsyncFailed):
        await flusher.durable(log, 1)
    assert len(fatal) == 1
    assert log.durable_offset == 0
    with pytest.raises(FsyncFailed):  # the disk would say yes now; the data may be gone all the same
        await flusher.durable(log, 1)
    assert log.durable_offset == 0
