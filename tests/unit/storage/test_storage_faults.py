"""A disk that refuses: a named error, the partition goes offline, nothing acknowledged is lost, others live on."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

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

from flymq.host.disk import SystemDisk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import (
    DiskFull,
    DiskPermissionDenied,
    FileVanished,
    FsyncFailed,
    PartitionOffline,
    StorageError,
)
from flymq.record.control import MarkerType
from flymq.storage.recovery.open_log import open_log

SMALL = settings(segment_bytes=1024)


def test_what_was_written_before_the_disk_was_full_can_still_be_made_durable() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    disk.bytes_free = 0
    with pytest.raises(DiskFull):
        append(log, batch("b"))
    sync(log)
    assert log.durable_offset == 1
    disk.cut_power()
    assert values(reopen(disk)) == ["a"]


@pytest.mark.parametrize("free", range(0, 400, 23))
def test_a_disk_that_fills_while_a_segment_is_rolled_loses_nothing(free: int) -> None:
    disk, log = open_simulated(SMALL)
    append(log, batch("x" * 600))
    disk.bytes_free = free
    with pytest.raises(DiskFull):
        append(log, batch("y" * 600))
    disk.bytes_free = None
    log = reopen(disk, SMALL)
    assert values(log) == ["x" * 600]
    assert append(log, batch("z")) == [1]


def test_other_logs_live_on() -> None:
    disk, log = open_simulated()
    other = open_log(disk, DIRECTORY.with_name("1"), settings())
    disk.fail_next("append", str(DIRECTORY), errno.EIO)
    with pytest.raises(StorageError):
        append(log, batch("a"))
    assert append(other, batch("b")) == [0]
    assert values(other) == ["b"]


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.EACCES, DiskPermissionDenied), (errno.EROFS, DiskPermissionDenied), (errno.EIO, StorageError)],
)
def test_a_refused_write_has_a_name(number: int, error: type[StorageError]) -> None:
    disk, log = open_simulated()
    disk.fail_next("append", ".log", number)
    with pytest.raises(error, match=errno.errorcode[number]):
        append(log, batch("a"))
    assert log.failure is not None
    assert append(reopen(disk), batch("a")) == [0]


def test_an_abort_that_cannot_be_listed_takes_the_log_offline_and_is_still_honoured() -> None:
    disk, log = open_simulated()
    append(log, idempotent(1, 0, "no", transactional=True))
    disk.fail_next("append", ".aborted", errno.EIO)
    with pytest.raises(StorageError):
        end_transaction(log, 1, MarkerType.ABORT)
    assert log.failure is not None
    assert committed_values(log) == []
    assert committed_values(reopen(disk)) == []


@pytest.mark.parametrize("operation", ["truncate", "delete_before", "retain"])
def test_a_failure_in_the_middle_of_shortening_takes_the_log_offline(operation: str) -> None:
    config = settings(segment_bytes=1024, retention_bytes=0)
    disk, log = open_simulated(config)
    append(log, *[batch("x" * 600)] * 3)
    checkpoint(log)
    disk.fail_next("append", ".tmp", errno.EIO)
    with pytest.raises(StorageError):
        if operation == "truncate":
            log.truncate(1)
        elif operation == "delete_before":
            run_steps_here(log.delete_before(2))
        else:
            log.retain(NOW_MS)
    assert log.failure is not None
    assert reopen(disk, config).end_offset in (1, 3)


def test_a_vanished_segment_file_takes_the_log_offline(tmp_path: Path) -> None:
    log = open_log(SystemDisk(), tmp_path / "0", SMALL)
    append(log, *[batch("x" * 600)] * 12)
    log.close()
    log = open_log(SystemDisk(), tmp_path / "0", SMALL)
    log.segments[0].path.unlink()
    with pytest.raises(FileVanished, match=r"00000\.log: No such file"):
        log.read(0, bytes_max=1)
    with pytest.raises(PartitionOffline):
        append(log, batch("y"))
    assert log.read(1, bytes_max=1) is not None


def test_after_a_failed_fsync_none_is_tried_again_and_no_orderly_end_is_claimed() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    disk.fail_next("sync", ".log", errno.EIO)
    with pytest.raises(FsyncFailed):
        sync(log)
    with pytest.raises(FsyncFailed):  # the disk would say yes now; the pages may be gone all the same
        sync(log)
    assert log.durable_offset == 0
    log.close()
    assert not reopen(disk).recovery.clean


def test_a_failed_fsync_of_the_names_counts_as_one_of_the_data() -> None:
    disk, log = open_simulated(SMALL)
    append(log, batch("x" * 600), batch("x" * 600))
    disk.fail_next("sync_directory", str(DIRECTORY), errno.EIO)
    with pytest.raises(FsyncFailed):
        sync(log)
    assert log.failure is not None


def test_two_sync_points_at_once_do_not_vouch_for_each_other() -> None:
    disk, log = open_simulated()
    append(log, batch("a"))
    first, second = log.begin_sync(), log.begin_sync()
    disk.fail_next("sync", ".log", errno.EIO)
    with pytest.raises(FsyncFailed):
        first.run()
    with pytest.raises(FsyncFailed):
        second.run()
    assert log.durable_offset == 0


def test_a_sync_point_from_before_a_truncation_vouches_for_nothing_written_since() -> None:
    _, log = open_simulated()
    append(log, batch("a"), batch("b"), batch("c"))
    point = log.begin_sync()
    point.run()
    log.truncate(1)
    append(log, batch("d"), batch("e"))
    log.end_sync(point)
    assert log.durable_offset <= 1
    sync(log)
    assert log.durable_offset == 3


def test_a_checkpoint_that_comes_late_undoes_no_truncation() -> None:
    disk, log = open_simulated()
    append(log, batch("a"), batch("b"), batch("c"))
    late = log.begin_checkpoint()
    assert late is not None
    log.truncate(1)
    append(log, batch("d"))
    late.run()
    log.end_sync(late)
    assert values(reopen(disk)) == ["a", "d"]


# --- the real disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)  # a failed test may hold files open


def test_a_real_full_disk_loses_nothing_and_retention_makes_room_after_a_restart(small_disk: Path) -> None:
    config = settings(segment_bytes=64 << 10)
    log = open_log(SystemDisk(), small_disk / "0", config)
    acknowledged = 0
    with pytest.raises(DiskFull):
        for number in range(1000):
            append(log, batch(f"{number:05d}" * 1000))
            acknowledged += 1
            if acknowledged == 150:
                checkpoint(log)
    assert 150 < acknowledged < 1000
    expected = [f"{number:05d}" for number in range(acknowledged)]
    assert [value and value[:5] for value in values(log)] == expected
    del log
    log = open_log(SystemDisk(), small_disk / "0", config)
    assert [value and value[:5] for value in values(log)] == expected
    log.config = settings(segment_bytes=64 << 10, retention_bytes=512 << 10)
    removal = log.retain(NOW_MS)
    assert removal is not None
    removal()
    assert append(log, batch("there is room")) == [acknowledged]


def test_a_directory_without_permission_has_a_name(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may do everything; the simulated disk covers this")
    (tmp_path / "0").mkdir(mode=0o500)
    with pytest.raises(DiskPermissionDenied):
        open_log(SystemDisk(), tmp_path / "0", settings())
