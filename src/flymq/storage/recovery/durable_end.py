"""Up to where a log is known to be on the disk: a file that is overwritten after every fsync.

    <partition>/durable     twice: "FMQD", CRC32C of the rest (u32 LE), end offset (i64 LE)

It is written after the fsync has returned and is rarely synced itself, so it may say too little, never too much. After
a killed process it is exact; after a power failure it is as old as its last writeback. A damaged batch before this
offset was on the disk, whole: that is corruption. One after it may be a write that the crash interrupted.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from struct import Struct

from flymq.host.disk import Disk
from flymq.model.errors import FsyncFailed, StorageError
from flymq.record.checksum import crc32c

FILE_NAME = "durable"
_COPY = Struct("<4sIq")
_OFFSET = Struct("<q")
_MAGIC = b"FMQD"
_SYNC_EVERY = 64
"""One in so many notes is synced: a busy log is then known to the last moments before a power failure, for one more
fsync in 64."""


class DurableEnd:
    """The note of one log. The caller makes sure that only one thread at a time writes it."""

    def __init__(self, disk: Disk, directory: Path, offset: int = 0) -> None:
        self._disk = disk
        self._path = directory / FILE_NAME
        self._written = offset
        self._unsynced = 0

    def advance(self, offset: int) -> None:
        """Everything before `offset` is on the disk now. Failing to write that down loses nothing but precision."""
        if offset <= self._written:
            return
        self._unsynced += 1
        is_synced = self._unsynced >= _SYNC_EVERY
        try:
            self._disk.overwrite(self._path, _encode(offset), sync=is_synced)
        except FsyncFailed:
            raise
        except StorageError:
            return
        self._written = offset
        if is_synced:
            self._unsynced = 0

    def lower(self, offset: int) -> None:
        """The log is about to be truncated to `offset`. Durable when this returns."""
        if offset < self._written:
            self._disk.overwrite(self._path, _encode(offset), sync=True)
            self._written, self._unsynced = offset, 0


def read_durable_end(disk: Disk, directory: Path) -> int:
    """Return the offset in the note; 0 when none can be read."""
    with suppress(StorageError):
        return parse_durable_end(disk.read(directory / FILE_NAME))
    return 0


def parse_durable_end(raw: bytes) -> int:
    for start in range(0, min(len(raw), 2 * _COPY.size) - _COPY.size + 1, _COPY.size):
        magic, checksum, offset = _COPY.unpack_from(raw, start)
        if magic == _MAGIC and checksum == crc32c(_OFFSET.pack(offset)) and offset >= 0:
            return int(offset)
    return 0


def _encode(offset: int) -> bytes:
    return _COPY.pack(_MAGIC, crc32c(_OFFSET.pack(offset)), offset) * 2
