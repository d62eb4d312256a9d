"""Files and directories. Every OSError is mapped to a FlyMQ error.

`Disk` is the interface that storage uses; `SystemDisk` is the real one, `SimulatedDisk` (simulated_disk.py) can lose
power. Writes go to the page cache; they are durable after `File.sync`, and file names after `sync_directory`.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from flymq.model.errors import DirectoryLocked, DiskFull, DiskPermissionDenied, FileVanished, FsyncFailed, StorageError

if TYPE_CHECKING:
    from flymq.host.database import Database

Buffer = bytes | bytearray | memoryview

ASIDE_SUFFIX = ".tmp"
PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
"""Permissions: only the user of the broker can access its data."""
_PIECES_PER_WRITE_MAX = 1024  # IOV_MAX on Linux and macOS
_REMOVALS_MAX = 100


class File(Protocol):
    """An open append-only file. It is closed when the last reference to it is dropped.

    So a slice that is being sent, or an fsync in another thread, keeps the file open while retention removes it.
    """

    path: Path

    def append(self, pieces: Sequence[Buffer]) -> None:
        """Append all pieces. After an error a part of them may be written: truncate."""

    def pread(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer at the end of the file."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Fsync: return when everything written so far is durable, or raise FsyncFailed. Thread-safe."""

    def fileno(self) -> int | None:
        """The descriptor, for sendfile; None if the file has none, or if its bytes are not those of `pread`."""


class DiskSpace(NamedTuple):
    """The usage of the file system of a directory."""

    free_bytes: int
    size_bytes: int


class Lock(Protocol):
    """A lock held until `release`."""

    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: Path) -> File:
        """Open for reading and appending; create the file if it does not exist."""

    def open_existing(self, path: Path) -> File:
        """Open an existing file."""

    def map(self, path: Path) -> memoryview:
        """Map a file that no longer changes into memory, read-only."""

    def read(self, path: Path) -> bytes: ...

    def overwrite(self, path: Path, content: bytes, *, sync: bool) -> None:
        """Write a small file in place, at most a sector. Without `sync` a power failure may leave what was there."""

    def size(self, path: Path) -> int: ...

    def exists(self, path: Path) -> bool: ...

    def list(self, directory: Path) -> list[str]:
        """The sorted names in a directory; none if it does not exist."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents. Durable when this returns, since its content depends on it."""

    def rename(self, path: Path, target: Path) -> None:
        """Rename, replacing `target` atomically."""

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""

    def remove_directory(self, path: Path) -> None:
        """Remove a directory and its content."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in the directory are durable, or raise FsyncFailed. Thread-safe."""

    def lock(self, path: Path) -> Lock:
        """Take the lock file at `path`, or raise DirectoryLocked."""

    def open_database(self, path: Path) -> Database:
        """Open the database at `path`, creating it if needed. Raises the errors of SQLite."""

    def space(self, directory: Path) -> DiskSpace:
        """Return the disk usage."""


def write_aside(disk: Disk, path: Path, content: bytes) -> None:
    """Replace the file at `path` atomically for this process; a power failure may lose or tear it."""
    aside = path.with_name(path.name + ASIDE_SUFFIX)
    disk.remove(aside)
    disk.open(aside).append([content])
    disk.rename(aside, path)


def replace_file(disk: Disk, path: Path, content: bytes) -> None:
    """Replace the file at `path` so that after a power failure either the old or the new file is there, complete."""
    replace_files(disk, path.parent, {path.name: content})


def replace_files(disk: Disk, directory: Path, contents: Mapping[str, bytes]) -> None:
    """Replace several files with one fsync of the directory. A power failure may leave some old, some new."""
    for name, content in contents.items():
        rename_synced(disk, directory / name, content)
    disk.sync_directory(directory)


def rename_synced(disk: Disk, path: Path, content: bytes) -> None:
    """Replace the file at `path` by a synced one. The name is durable after the next `sync_directory`."""
    aside = path.with_name(path.name + ASIDE_SUFFIX)
    disk.remove(aside)
    file = disk.open(aside)
    file.append([content])
    file.sync()
    disk.rename(aside, path)


def storage_error(error: OSError, path: Path) -> StorageError:
    """Return the FlyMQ error for an OSError of `path`."""
    text = f"{path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(text)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DiskPermissionDenied(text)
    if error.errno in (errno.ENOENT, errno.ESTALE):
        return FileVanished(text)
    return StorageError(text)


class SystemFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path, flags: int) -> None:
        self._fd = -1
        self.path = path
        self._fd = os.open(path, flags | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def append(self, pieces: Sequence[Buffer]) -> None:
        try:
            written = os.writev(self._fd, pieces) if len(pieces) <= _PIECES_PER_WRITE_MAX else 0
            if written != sum(map(len, pieces)):
                self._append_rest(memoryview(b"".join(pieces))[written:])
        except OSError as error:
            raise storage_error(error, self.path) from error

    def _append_rest(self, rest: memoryview) -> None:
        """Write the rest after a partial write: too many pieces, or the disk is nearly full."""
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def pread(self, size: int, position: int) -> bytes:
        try:
            return os.pread(self._fd, size, position)
        except OSError as error:
            raise storage_error(error, self.path) from error

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise storage_error(error, self.path) from error

    def sync(self) -> None:
        _sync_file(self._fd, self.path)

    def fileno(self) -> int:
        return self._fd


class SystemLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)  # the kernel releases the lock with the descriptor, also if the process is killed
            self._fd = -1


class SystemDisk:
    """The operating system's files."""

    def open(self, path: Path) -> File:
        return self._open(path, os.O_CREAT)

    def open_existing(self, path: Path) -> File:
        return self._open(path, 0)

    def _open(self, path: Path, flags: int) -> File:
        try:
            return SystemFile(path, flags)
        except OSError as error:
            raise storage_error(error, path) from error

    def map(self, path: Path) -> memoryview:
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    return memoryview(b"")
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise storage_error(error, path) from error

    def read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise storage_error(error, path) from error

    def overwrite(self, path: Path, content: bytes, *, sync: bool) -> None:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
            try:
                os.pwrite(fd, content, 0)
                if sync:
                    _sync_file(fd, path)
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_error(error, path) from error

    def size(self, path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError as error:
            raise storage_error(error, path) from error

    def exists(self, path: Path) -> bool:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_error(error, path) from error
        return True

    def list(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))  # noqa: PTH208 - names, not paths: 10 x faster
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, directory) from error

    def make_directory(self, path: Path) -> None:
        if self.exists(path):
            return
        self.make_directory(path.parent)
        try:
            path.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
        except OSError as error:
            raise storage_error(error, path) from error
        self.sync_directory(path.parent)

    def rename(self, path: Path, target: Path) -> None:
        try:
            path.replace(target)
        except OSError as error:
            raise storage_error(error, path) from error

    def remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(error, path) from error

    def remove_directory(self, path: Path) -> None:
        for attempts_left in reversed(range(_REMOVALS_MAX)):
            try:
                shutil.rmtree(path)
                return
            except OSError as error:
                if not path.exists():
                    return
                # A sync that began before may still create and rename files in there, in another thread.
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY) or not attempts_left:
                    raise storage_error(error, path) from error

    def sync_directory(self, path: Path) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            os.fsync(fd)
        except OSError as error:
            raise FsyncFailed(f"{path}: {error.strerror or error}") from error
        finally:
            os.close(fd)

    def lock(self, path: Path) -> Lock:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 20, 0).decode(errors="replace").strip()
            os.close(fd)
            raise DirectoryLocked(f"{path.parent} is in use by process {owner}") from None
        except OSError as error:
            os.close(fd)
            raise storage_error(error, path) from error
        with suppress(OSError):  # the owner is informational; on a full disk the lock alone is enough
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return SystemLock(fd)

    def open_database(self, path: Path) -> Database:
        from flymq.host.database import SystemDatabase  # clients do not need SQLite

        return SystemDatabase(path)

    def space(self, directory: Path) -> DiskSpace:
        try:
            found = os.statvfs(directory)
        except OSError as error:
            raise storage_error(error, directory) from error
        return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def _sync_file(fd: int, path: Path) -> None:
    """Flush data and size of a file to the device, including the write cache of the device."""
    try:
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)
    except OSError as error:
        raise FsyncFailed(f"{path}: {error.strerror or error}") from error
