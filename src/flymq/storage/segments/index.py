"""Sparse indexes of a segment: where a batch of some offset or time begins, to within a few kilobytes.

    <base offset>.index       entries of u64, little-endian: offset relative to the base << 32 | position
    <base offset>.timeindex   entries of two i64, little-endian: latest timestamp before the position, position

The two have their entries at the same positions; the time index has one more, the last, at the end of the batches that
were indexed. Both files end with eight bytes: `FMQI` and the CRC32C of the entries, little-endian. Entries ascend, so
a lookup is a binary search. The index of the active segment lives in memory and is saved at each checkpoint; one of a
sealed segment is mapped. An index that is missing, damaged or outdated is rebuilt from the segment.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from struct import Struct

from flymq.host.disk import Disk
from flymq.record.checksum import crc32c
from flymq.record.header import NO_TIMESTAMP

assert sys.byteorder == "little", "index files are mapped as they are; FlyMQ runs on little-endian machines"

_POSITION_MASK = (1 << 32) - 1
_TRAILER = Struct("<4sI")
_MAGIC = b"FMQI"


class OffsetIndex:
    """Relative offset → position of the batch that begins there."""

    __slots__ = ("_entries",)

    def __init__(self, entries: array[int] | memoryview | None = None) -> None:
        self._entries: array[int] | memoryview = array("Q") if entries is None else entries

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, relative_offset: int, position: int) -> None:
        assert isinstance(self._entries, array), "a sealed segment's index does not grow"
        self._entries.append(relative_offset << 32 | position)

    def floor_of_offset(self, relative_offset: int) -> tuple[int, int]:
        """Return (relative offset, position) of a batch at or before the one that holds this offset."""
        at = bisect_right(self._entries, relative_offset << 32 | _POSITION_MASK)
        return (self._entries[at - 1] >> 32, self._entries[at - 1] & _POSITION_MASK) if at else (0, 0)

    def floor_of_position(self, position: int) -> int:
        """Return the last indexed position at or before this one."""
        at = bisect_right(self._entries, position, key=lambda entry: entry & _POSITION_MASK)
        return self._entries[at - 1] & _POSITION_MASK if at else 0

    @property
    def last_position(self) -> int:
        """The position of the last entry; 0 without one."""
        return self._entries[-1] & _POSITION_MASK if self._entries else 0

    def cut(self, position: int) -> OffsetIndex:
        """Return a growing index of the entries before `position`."""
        kept = bisect_left(self._entries, position, key=lambda entry: entry & _POSITION_MASK)
        return OffsetIndex(array("Q", self._entries[:kept]))

    def to_bytes(self) -> bytes:
        return _with_trailer(bytes(self._entries))

    @staticmethod
    def map(disk: Disk, path: Path) -> OffsetIndex | None:
        """Map a saved index; None when it is absent or damaged."""
        entries = _map_entries(disk, path, entry_size=8)
        return None if entries is None else OffsetIndex(entries.cast("Q"))


class TimeIndex:
    """Timestamp → position before which every record is older."""

    __slots__ = ("_entries",)

    def __init__(self, entries: array[int] | memoryview | None = None) -> None:
        self._entries: array[int] | memoryview = array("q") if entries is None else entries

    def __len__(self) -> int:
        return len(self._entries) // 2

    def add(self, timestamp: int, position: int) -> None:
        assert isinstance(self._entries, array), "a sealed segment's index does not grow"
        self._entries.append(timestamp)
        self._entries.append(position)

    def floor(self, timestamp: int) -> int:
        """Return a position such that every record before it is older than `timestamp`."""
        at = bisect_left(range(len(self)), timestamp, key=lambda entry: self._entries[2 * entry])
        return self._entries[2 * at - 1] if at else 0

    @property
    def last_timestamp(self) -> int:
        """The latest time any entry knows."""
        return self._entries[-2] if self._entries else NO_TIMESTAMP

    @property
    def last_position(self) -> int:
        """The position of the last entry; 0 without one."""
        return self._entries[-1] if self._entries else 0

    def first(self, count: int) -> TimeIndex:
        """Return a growing index of the first entries."""
        return TimeIndex(array("q", self._entries[: 2 * count]))

    def to_bytes(self, latest: int, size: int) -> bytes:
        """Return the file: the entries and the last one, which says that `size` bytes hold nothing after `latest`."""
        return _with_trailer(bytes(self._entries) + array("q", (latest, size)).tobytes())

    @staticmethod
    def map(disk: Disk, path: Path) -> TimeIndex | None:
        """Map a saved index; None when it is absent or damaged."""
        entries = _map_entries(disk, path, entry_size=16)
        return None if entries is None else TimeIndex(entries.cast("q"))


def _with_trailer(entries: bytes) -> bytes:
    return entries + _TRAILER.pack(_MAGIC, crc32c(entries))


def _map_entries(disk: Disk, path: Path, entry_size: int) -> memoryview | None:
    if not disk.exists(path):
        return None
    raw = disk.map(path)
    size = len(raw) - _TRAILER.size
    if size < 0 or size % entry_size:
        return None
    magic, checksum = _TRAILER.unpack_from(raw, size)
    entries = raw[:size]
    return entries if magic == _MAGIC and checksum == crc32c(entries) else None
