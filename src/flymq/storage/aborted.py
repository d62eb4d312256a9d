"""Which transactions were aborted, so that readers of committed records can leave theirs out.

<base offset>.aborted    for each abort marker in that segment, 36 bytes, big-endian:
                         producer id i64, first offset i64, last offset (the marker) i64,
                         last stable offset behind the marker i64, CRC32C of these 32 bytes u32
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from flymq.host.disk import Disk, File, replace_file
from flymq.record.checksum import crc32c
from flymq.storage.segment import segment_name

SUFFIX = ".aborted"
_ENTRY = Struct(">qqqq")
_CHECKSUM = Struct(">I")
_SIZE = _ENTRY.size + _CHECKSUM.size


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int
    """The last stable offset once this transaction had ended: no transaction that begins later is open before it."""


class AbortedTransactions:
    """The aborted transactions of one log, kept in files that live and die with its segments."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._by_segment: dict[int, list[AbortedTransaction]] = {}

    def load(self, base_offset: int, end_offset: int) -> None:
        """Read the entries of one segment that lie before `end_offset`; what comes later is replayed from the log."""
        path = self._path(base_offset)
        if not self._disk.exists(path):
            return
        raw = self._disk.read(path)
        entries = []
        for at in range(0, len(raw) - _SIZE + 1, _SIZE):
            if _CHECKSUM.unpack_from(raw, at + _ENTRY.size)[0] != crc32c(raw[at : at + _ENTRY.size]):
                break
            entries.append(AbortedTransaction._make(_ENTRY.unpack_from(raw, at)))
        self._store(base_offset, [entry for entry in entries if entry.last_offset < end_offset])

    def add(self, base_offset: int, entry: AbortedTransaction) -> File:
        """Note an abort whose marker lies in this segment; return the file, which the next fsync must cover."""
        file = self._disk.open(self._path(base_offset))
        file.append([_encode(entry)])
        self._by_segment.setdefault(base_offset, []).append(entry)
        return file

    def between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [start, end)."""
        found = []
        for base_offset in sorted(self._by_segment):
            for entry in self._by_segment[base_offset]:
                if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                    found.append(entry)
        return found

    def cut(self, end_offset: int) -> None:
        """Forget aborts whose markers were truncated."""
        for base_offset, entries in list(self._by_segment.items()):
            self._store(base_offset, [entry for entry in entries if entry.last_offset < end_offset])

    def forget_before(self, end_offset: int) -> None:
        """Forget aborts whose records and markers all lie before `end_offset`."""
        for base_offset, entries in list(self._by_segment.items()):
            self._store(base_offset, [entry for entry in entries if entry.last_offset >= end_offset])

    def remove(self, base_offset: int) -> None:
        """Forget the aborts of a segment that is removed."""
        self._by_segment.pop(base_offset, None)
        self._disk.remove(self._path(base_offset))

    def merge(self, base_offsets: list[int]) -> None:
        """Move the entries of segments that compaction made one into the file of the first."""
        entries = [entry for base in base_offsets for entry in self._by_segment.get(base, [])]
        self._store(base_offsets[0], entries)
        for base_offset in base_offsets[1:]:
            self.remove(base_offset)

    def _store(self, base_offset: int, entries: list[AbortedTransaction]) -> None:
        if entries == self._by_segment.get(base_offset):
            return
        if not entries:
            self.remove(base_offset)
            return
        replace_file(self._disk, self._path(base_offset), b"".join(map(_encode, entries)))
        self._by_segment[base_offset] = entries

    def _path(self, base_offset: int) -> Path:
        return self._directory / segment_name(base_offset, SUFFIX)


def _encode(entry: AbortedTransaction) -> bytes:
    body = _ENTRY.pack(*entry)
    return body + _CHECKSUM.pack(crc32c(body))
