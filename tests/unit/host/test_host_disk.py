"""The real disk and the simulated one keep the same contract."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from flymq.host.disk import Disk, SystemDisk, replace_file, replace_files, storage_error, write_aside
from flymq.host.simulated_disk import SimulatedDisk
from flymq.model.errors import (
    DirectoryLocked,
    DiskFull,
    DiskPermissionDenied,
    FileVanished,
    StorageError,
    TooManyOpenFiles,
)


@pytest.fixture(params=["system", "simulated"])
def disk(request: pytest.FixtureRequest) -> Iterator[Disk]:
    yield SystemDisk() if request.param == "system" else SimulatedDisk()


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> Path:
    path = tmp_path / "a" / "b"
    disk.make_directory(path)
    return path


def test_a_file_grows_at_its_end_and_is_read_anywhere(disk: Disk, folder: Path) -> None:
    file = disk.open(folder / "file")
    file.append([b"ab", bytearray(b"cd"), memoryview(b"ef")])
    file.append([b"gh"])
    assert (file.pread(3, 2), file.pread(10, 6), file.pread(1, 100), file.size()) == (b"cde", b"gh", b"", 8)
    file.truncate(3)
    file.append([b"X"])
    file.sync()
    assert disk.read(folder / "file") == b"abcX"
    assert disk.open(folder / "file").pread(10, 0) == b"abcX"


def test_more_pieces_than_the_system_takes_at_once_are_written_in_order(disk: Disk, folder: Path) -> None:
    pieces = [b"%05d" % number for number in range(3000)]
    disk.open(folder / "file").append(pieces)
    assert disk.read(folder / "file") == b"".join(pieces)


def test_a_mapped_file_is_its_content(disk: Disk, folder: Path) -> None:
    disk.open(folder / "file").append([b"content"])
    disk.open(folder / "empty")
    assert bytes(disk.map(folder / "file")) == b"content"
    assert bytes(disk.map(folder / "empty")) == b""


def test_an_open_file_outlives_its_name(disk: Disk, folder: Path) -> None:
    file = disk.open(folder / "file")
    file.append([b"content"])
    disk.remove(folder / "file")
    disk.remove(folder / "file")  # one that is not there is fine
    assert file.pread(7, 0) == b"content"
    assert not disk.exists(folder / "file")


def test_a_file_that_is_not_there_has_a_name_for_it(disk: Disk, folder: Path) -> None:
    for ask in (disk.open_existing, disk.read, disk.size, disk.map):
        with pytest.raises(FileVanished, match="nothing"):
            ask(folder / "nothing")
    with pytest.raises(FileVanished):
        disk.rename(folder / "nothing", folder / "else")
    with pytest.raises(FileVanished):
        disk.open(folder / "nowhere" / "file")
    assert disk.list(folder / "nowhere") == []


def test_directories_list_what_is_in_them(disk: Disk, folder: Path) -> None:
    disk.make_directory(folder / "sub")
    disk.make_directory(folder / "sub")
    disk.open(folder / "b")
    disk.open(folder / "a")
    disk.open(folder / "sub" / "c")
    assert disk.list(folder) == ["a", "b", "sub"]
    disk.remove_directory(folder / "sub")
    disk.remove_directory(folder / "sub")
    assert disk.list(folder) == ["a", "b"]
    assert disk.exists(folder)
    assert not disk.exists(folder / "sub")


def test_a_rename_replaces_its_target(disk: Disk, folder: Path) -> None:
    disk.open(folder / "new").append([b"new"])
    disk.open(folder / "old").append([b"old"])
    disk.rename(folder / "new", folder / "old")
    disk.sync_directory(folder)
    assert disk.read(folder / "old") == b"new"
    assert disk.list(folder) == ["old"]


def test_files_are_replaced_whole_and_leave_nothing_aside(disk: Disk, folder: Path) -> None:
    write_aside(disk, folder / "a", b"1")
    replace_file(disk, folder / "a", b"2")
    replace_files(disk, folder, {"a": b"3", "b": b"4"})
    assert (disk.read(folder / "a"), disk.read(folder / "b")) == (b"3", b"4")
    assert disk.list(folder) == ["a", "b"]


def test_a_directory_has_one_owner_at_a_time(disk: Disk, folder: Path) -> None:
    lock = disk.lock(folder / "lock")
    with pytest.raises(DirectoryLocked, match="is in use"):
        disk.lock(folder / "lock")
    lock.release()
    lock.release()
    disk.lock(folder / "lock").release()


def test_a_directory_that_is_a_file_has_a_named_error(tmp_path: Path) -> None:
    disk = SystemDisk()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        disk.make_directory(tmp_path / "file" / "sub")
    with pytest.raises(StorageError):
        disk.list(tmp_path / "file")
    with pytest.raises(StorageError):
        disk.remove(tmp_path)
    assert not disk.exists(tmp_path / "file" / "sub")


def test_files_close_themselves(tmp_path: Path) -> None:
    disk = SystemDisk()
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for number in range(50):
        disk.open(tmp_path / str(number)).append([b"x"])
        disk.map(tmp_path / str(number))
    after = len(list(Path("/proc/self/fd").iterdir())) if before else 0
    assert after <= before + 2


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EACCES, DiskPermissionDenied),
        (errno.EPERM, DiskPermissionDenied),
        (errno.EROFS, DiskPermissionDenied),
        (errno.ENOENT, FileVanished),
        (errno.EIO, StorageError),
        (errno.EMFILE, TooManyOpenFiles),
    ],
)
def test_what_the_system_says_gets_a_name(number: int, kind: type[StorageError]) -> None:
    error = storage_error(OSError(number, os.strerror(number)), Path("/data/file"))
    assert type(error) is kind
    assert error.message == f"/data/file: {os.strerror(number)}"


def test_a_directory_is_removed_while_another_thread_still_replaces_files_in_it(tmp_path: Path) -> None:
    disk = SystemDisk()

    def replace_until_gone(directory: Path) -> None:
        with suppress(StorageError):
            while True:
                write_aside(disk, directory / "note", b"x")

    for number in range(20):
        directory = tmp_path / str(number)
        disk.make_directory(directory)
        writer = threading.Thread(target=replace_until_gone, args=(directory,), daemon=True)
        writer.start()
        disk.remove_directory(directory)
        assert not directory.exists()
        writer.join()


def test_allocated_space_is_taken_before_it_is_written(tmp_path: Path) -> None:
    file = SystemDisk().open(tmp_path / "reserve")
    file.allocate(1 << 20)
    assert file.size() == 1 << 20
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 1 << 20
    file.allocate(1 << 20)
    assert file.size() == 1 << 20


def test_a_file_system_without_fallocate_gets_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = SystemDisk().open(tmp_path / "reserve")
    file.allocate(3_000_000)
    assert file.size() == 3_000_000


def test_descriptors_are_tried_and_given_back() -> None:
    assert SystemDisk().can_open(5)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/dev/fd"))  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 10, hard))
    try:
        assert not SystemDisk().can_open(100)
        assert SystemDisk().can_open(2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
