"""A disk in memory that can lose power, fill up, fail and corrupt data: for simulation and crash tests.

It keeps two states. The *cache* is what a running process sees. The *platter* is what remains after a power failure:
the content of each file at the last `sync` and an arbitrary part of later writes, and of the names in a directory an
arbitrary part of the changes since the last `sync_directory`, in no particular order. This is as bad as the worst file
system allows. Randomness is passed in, so that a seed can be replayed.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from flymq.host.database import Database, SimulatedDatabase
from flymq.host.disk import Buffer, DiskSpace, File, Lock, storage_error
from flymq.model.errors import DirectoryLocked, FsyncFailed, StorageError

_SECTOR = 512
_SIZE_BYTES = 1 << 40


class PowerCut(BaseException):
    """A power failure during an operation. A program cannot handle it, so it is not an `Exception`."""


class _Inode:
    """One file's content in the cache and on the platter."""

    __slots__ = ("cache", "dirty_from", "platter")

    def __init__(self) -> None:
        self.cache = bytearray()
        self.platter = b""
        self.dirty_from: int | None = (
            None  # lowest byte changed since the last sync; None: everything is on the platter
        )

    def touch(self, position: int) -> None:
        self.dirty_from = position if self.dirty_from is None else min(self.dirty_from, position)

    def sync(self) -> None:
        self.platter = bytes(self.cache)
        self.dirty_from = None

    def cut(self, chance: random.Random) -> None:
        """Lose power: keep the synced content and an arbitrary part of the rest."""
        if self.dirty_from is not None:
            self.platter = self._survivor(self.dirty_from, chance)
        self.cache = bytearray(self.platter)
        self.dirty_from = None

    def _survivor(self, dirty_from: int, chance: random.Random) -> bytes:
        if chance.random() < 0.2:
            return self.platter  # no change reached the disk, not even a truncation
        survivor = self.cache[: chance.randint(dirty_from, len(self.cache))]
        if chance.random() < 0.3:  # the size was written before some of the data
            for sector in range(dirty_from // _SECTOR, len(survivor) // _SECTOR + 1):
                if chance.random() < 0.4:
                    lost = slice(max(sector * _SECTOR, dirty_from), min((sector + 1) * _SECTOR, len(survivor)))
                    old = self.platter[lost]  # the previous content, else zeros
                    survivor[lost] = old + bytes(lost.stop - lost.start - len(old))
        return bytes(survivor)


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, path: Path, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self.path = path

    def append(self, pieces: Sequence[Buffer]) -> None:
        data = b"".join(pieces)
        allowed = self._disk.take_bytes(self.path, len(data))
        self._inode.touch(len(self._inode.cache))
        self._inode.cache += data[:allowed]
        if allowed < len(data):
            self._disk.refuse(self.path)

    def overwrite(self, content: bytes) -> None:
        """Write at the beginning."""
        allowed = self._disk.take_bytes(self.path, len(content))
        self._inode.touch(0)
        self._inode.cache[:allowed] = content[:allowed]
        if allowed < len(content):
            self._disk.refuse(self.path)

    def pread(self, size: int, position: int) -> bytes:
        self._disk.operate("pread", self.path)
        return bytes(self._inode.cache[position : position + size])

    def size(self) -> int:
        return len(self._inode.cache)

    def truncate(self, size: int) -> None:
        self._disk.operate("truncate", self.path)
        self._inode.touch(min(size, len(self._inode.cache)))
        del self._inode.cache[size:]
        self._inode.cache += bytes(size - len(self._inode.cache))

    def sync(self) -> None:
        self._disk.operate_sync("sync", self.path)
        self._inode.sync()

    def fileno(self) -> None:
        """Always None: read the content instead."""


class SimulatedLock:
    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


class SimulatedDisk:
    """Files in memory, with faults on demand."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self._files: dict[Path, _Inode] = {}
        self._directories: set[Path] = set()
        self._platter_files: dict[Path, _Inode] = {}
        self._name_changes: list[tuple[Path, Callable[[dict[Path, _Inode]], object]]] = []
        self._locked: set[Path] = set()
        self._failures: list[tuple[str, str, OSError]] = []
        self.bytes_until_cut: int | None = None
        """Power is lost after this many written bytes; an operation without a write counts as one."""
        self.bytes_free: int | None = None
        """Writes fail as on a full disk after this many bytes."""
        self.on_power_lost: Callable[[], None] = lambda: None
        """Called when power is lost during an operation, before PowerCut is raised."""
        self.syncs = 0
        """Number of syncs of files and directories so far."""

    # --- faults

    def cut_power(self) -> None:
        """Keep only the state of the platter, as after a restart of the machine."""
        for change in self._surviving_changes():
            change(self._platter_files)
        self._name_changes.clear()
        self._files = dict(self._platter_files)
        for inode in dict.fromkeys(self._files.values()):
            inode.cut(self._chance)
        self._locked.clear()
        self._failures.clear()
        self.bytes_until_cut = None

    def _surviving_changes(self) -> list[Callable[[dict[Path, _Inode]], object]]:
        """Choose a prefix of the name changes, as with a journal, or any part of them, as without."""
        changes = [change for _, change in self._name_changes]
        if self._chance.random() < 0.5:
            return changes[: self._chance.randint(0, len(changes))]
        return [change for change in changes if self._chance.random() < 0.5]

    def end_process(self) -> None:
        """Release the locks of a killed process; its writes stay in the cache."""
        self._locked.clear()

    def fail_next(self, operation: str, name_part: str, number: int) -> None:
        """Fail the next `operation` on a path whose name contains `name_part` with the errno `number`."""
        self._failures.append((operation, name_part, OSError(number, errno.errorcode[number])))

    def flip_bit(self, path: Path, position: int, bit: int = 0) -> None:
        """Flip one bit in the cache and on the platter."""
        inode = self._files[path]
        inode.cache[position] ^= 1 << bit
        if position < len(inode.platter):
            platter = bytearray(inode.platter)
            platter[position] ^= 1 << bit
            inode.platter = bytes(platter)

    def paths(self) -> list[Path]:
        return sorted(self._files)

    def operate(self, operation: str, path: Path) -> None:
        """Count one operation; raise if a fault is due."""
        if self.bytes_until_cut is not None:
            self.bytes_until_cut -= 1
            if self.bytes_until_cut < 0:
                self._lose_power()
        for failure in self._failures:
            if failure[0] == operation and failure[1] in str(path):
                self._failures.remove(failure)
                raise storage_error(failure[2], path) from failure[2]

    def operate_sync(self, operation: str, path: Path) -> None:
        """Count an operation whose failure leaves an unknown state."""
        try:
            self.operate(operation, path)
        except StorageError as error:
            raise FsyncFailed(error.message) from error
        self.syncs += 1

    def take_bytes(self, path: Path, wanted: int) -> int:
        """Return how many of `wanted` bytes may still be written."""
        self.operate("append", path)
        allowed = wanted
        if self.bytes_free is not None:
            allowed = min(allowed, self.bytes_free)
            self.bytes_free -= allowed
        if self.bytes_until_cut is not None:
            allowed = min(allowed, self.bytes_until_cut)
            self.bytes_until_cut -= allowed
        return allowed

    def refuse(self, path: Path) -> None:
        """Raise the error of a partial write."""
        if self.bytes_until_cut == 0:
            self._lose_power()
        raise storage_error(OSError(errno.ENOSPC, "No space left on device"), path)

    def _lose_power(self) -> NoReturn:
        self.on_power_lost()
        raise PowerCut

    # --- the disk

    def open(self, path: Path) -> File:
        if path not in self._files:
            self.operate("create", path)
            if path.parent not in self._directories:
                raise _absent(path)
            inode = _Inode()
            self._change(path, lambda files: files.update({path: inode}))
        return self.open_existing(path)

    def open_existing(self, path: Path) -> File:
        self.operate("open", path)
        return SimulatedFile(self, path, self._inode(path))

    def map(self, path: Path) -> memoryview:
        return memoryview(self.read(path))

    def read(self, path: Path) -> bytes:
        self.operate("read", path)
        return bytes(self._inode(path).cache)

    def overwrite(self, path: Path, content: bytes, *, sync: bool) -> None:
        file = self.open(path)
        assert isinstance(file, SimulatedFile)
        file.overwrite(content)
        if sync:
            file.sync()

    def size(self, path: Path) -> int:
        return len(self._inode(path).cache)

    def exists(self, path: Path) -> bool:
        return path in self._files or path in self._directories

    def list(self, directory: Path) -> list[str]:
        return sorted(path.name for path in (*self._files, *self._directories) if path.parent == directory)

    def make_directory(self, path: Path) -> None:
        if path not in self._directories:
            self.operate("make_directory", path)
            self._directories.update((path, *path.parents))

    def rename(self, path: Path, target: Path) -> None:
        self.operate("rename", path)
        inode = self._inode(path)

        def change(files: dict[Path, _Inode]) -> None:
            files.pop(path, None)
            files[target] = inode

        self._change(target, change)

    def remove(self, path: Path) -> None:
        if path in self._files:
            self.operate("remove", path)
            self._change(path, lambda files: files.pop(path, None))

    def remove_directory(self, path: Path) -> None:
        for inside in [name for name in self._files if path in name.parents]:
            self.remove(inside)
        self._directories = {name for name in self._directories if name != path and path not in name.parents}

    def sync_directory(self, path: Path) -> None:
        self.operate_sync("sync_directory", path)
        for where, change in self._name_changes:
            if where.parent == path:
                change(self._platter_files)
        self._name_changes = [entry for entry in self._name_changes if entry[0].parent != path]

    def lock(self, path: Path) -> Lock:
        if path in self._locked:
            raise DirectoryLocked(f"{path.parent} is in use")
        self._locked.add(path)
        return SimulatedLock(self._locked, path)

    def open_database(self, path: Path) -> Database:
        return SimulatedDatabase(self, path)

    def space(self, directory: Path) -> DiskSpace:
        used = sum(len(inode.cache) for inode in self._files.values())
        free = _SIZE_BYTES - used if self.bytes_free is None else self.bytes_free
        return DiskSpace(free, used + free)

    def _change(self, path: Path, change: Callable[[dict[Path, _Inode]], object]) -> None:
        change(self._files)
        self._name_changes.append((path, change))

    def _inode(self, path: Path) -> _Inode:
        if path not in self._files:
            raise _absent(path)
        return self._files[path]


def _absent(path: Path) -> StorageError:
    return storage_error(FileNotFoundError(errno.ENOENT, "No such file or directory"), path)
