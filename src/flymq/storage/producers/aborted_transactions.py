"""Which transactions were aborted, so that readers of committed records can skip their records.

<base offset>.aborted    for each abort marker in that segment, 36 bytes, big-endian:
                         producer id i64, first offset i64, last offset (the marker) i64,
                         last stable offset after the marker i64, CRC32C of these 32 bytes u32
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from flymq.host.disk import Disk, File, replace_file
from flymq.model.errors import ResourcesExhausted
from flymq.record.checksum import crc32c
from flymq.storage.segments.segment import parse_name, segment_name

SUFFIX = ".aborted"
_ENTRY = Struct(">qqqq")
_CHECKSUM = Struct(">I")
_SIZE = _ENTRY.size + _CHECKSUM.size


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int
    """The last stable offset once this transaction had ended: those that end later begin there or later."""


class AbortedMark(NamedTuple):
    """How many entries the files had: that of the active segment, and (base offset, entries) of those before it."""

    base_offset: int = 0
    entries: int = 0
    sealed: tuple[tuple[int, int], ...] = ()


def transactions_between(
    in_order: list[AbortedTransaction], start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Return those that have records in [start, end). They come in the order of their markers."""
    found = []
    for entry in in_order[bisect_right(in_order, start_offset - 1, key=lambda entry: entry.last_offset) :]:
        if entry.first_offset < end_offset:
            found.append(entry)
        if entry.stable_offset >= end_offset:
            break
    return found


class AbortedTransactions:
    """The aborted transactions of one log, kept in one file per segment."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._by_segment: dict[int, list[AbortedTransaction]] = {}
        self._growing: tuple[int, File] | None = None
        self._written: list[File] = []
        self._unwritten: set[int] = set()  # segments whose file lacks entries, since the disk was full

    def load(self, base_offsets: list[int], end_offset: int, mark: AbortedMark) -> bool:
        """Read the entries before `end_offset` into these segments; what comes later is replayed from the log.

        `mark` says what was on the disk at that offset. Return False when some of it is damaged: then the whole log
        must be replayed.
        """
        raw = {base: self._disk.read(self._path(base)) for base in self._files() if base >= base_offsets[0]}
        entries: dict[int, list[AbortedTransaction]] = {}
        for base_offset in sorted({*raw, max(mark.base_offset, base_offsets[0])}):
            parsed, is_whole = parse_entries(raw.get(base_offset, b""))
            known = [entry for entry in parsed if entry.last_offset < end_offset]
            if base_offset < mark.base_offset and not is_whole:
                return False
            if base_offset == mark.base_offset and len(known) < mark.entries:
                return False
            # The file of a segment that compaction merged into the one before belongs to that one.
            owner = base_offsets[bisect_right(base_offsets, base_offset) - 1]
            entries.setdefault(owner, []).extend(known)
        noted = (*mark.sealed, (mark.base_offset, mark.entries))
        expected = sum(count for base_offset, count in noted if base_offset >= base_offsets[0])
        if sum(map(len, entries.values())) < expected:
            return False  # a file is gone; or compaction has dropped entries since, which a replay shows
        self._replace(raw, entries)
        return True

    def clear(self, start_offset: int) -> None:
        """Forget everything from the segment at `start_offset` on, for a replay of the whole log."""
        for base_offset in self._files():
            if base_offset >= start_offset:
                self._disk.remove(self._path(base_offset))
        self._by_segment.clear()
        self._unwritten.clear()
        self._growing = None

    def release_files(self) -> None:
        """Close all files."""
        self._growing = None
        self._written.clear()

    def remove_before(self, start_offset: int) -> None:
        """Remove the files that a crash left of removed segments."""
        for base_offset in self._files():
            if base_offset < start_offset:
                self._disk.remove(self._path(base_offset))

    def add(self, base_offset: int, entry: AbortedTransaction) -> None:
        """Note an abort whose marker lies in this segment. If the disk is full, its file is written later."""
        self._by_segment.setdefault(base_offset, []).append(entry)
        if base_offset in self._unwritten:
            return
        try:
            if self._growing is None or self._growing[0] != base_offset:
                self._growing = base_offset, self._disk.open(self._path(base_offset))
            self._growing[1].append([_encode(entry)])
            self._written.append(self._growing[1])
        except ResourcesExhausted:
            self._unwritten.add(base_offset)
            self._stop_growing(base_offset)

    def write_missing(self) -> None:
        """Write what `add` could not. Before a snapshot: what it covers is not replayed from the log again."""
        for base_offset in sorted(self._unwritten):
            replace_file(self._disk, self._path(base_offset), b"".join(map(_encode, self._by_segment[base_offset])))
            self._unwritten.discard(base_offset)

    def take_written(self) -> set[File]:
        """Return the files written since the last call. The next sync must cover them and their names."""
        written, self._written = set(self._written), []
        return written

    def mark(self, base_offset: int) -> AbortedMark:
        """Return what the next sync makes durable, when this is the active segment."""
        sealed = tuple((base, len(entries)) for base, entries in self._by_segment.items() if base < base_offset)
        return AbortedMark(base_offset, len(self._by_segment.get(base_offset, [])), sealed)

    def between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [start, end)."""
        if not self._by_segment:
            return []
        bases = sorted(self._by_segment)
        # No marker from `start_offset` on lies before the segment that holds it.
        relevant = bases[max(0, bisect_right(bases, start_offset) - 1) :]
        in_order = [entry for base_offset in relevant for entry in self._by_segment[base_offset]]
        return transactions_between(in_order, start_offset, end_offset)

    def forget_before(self, end_offset: int) -> None:
        """Forget aborts whose records and markers all lie before `end_offset`."""
        for base_offset, entries in list(self._by_segment.items()):
            self._store(base_offset, [entry for entry in entries if entry.last_offset >= end_offset])

    def forget_segment(self, base_offset: int) -> Path | None:
        """Forget the aborts of a segment; return their file, if it has any, to remove once the segment is removed."""
        self._unwritten.discard(base_offset)
        self._stop_growing(base_offset)
        return None if self._by_segment.pop(base_offset, None) is None else self._path(base_offset)

    def merge(self, base_offsets: list[int]) -> None:
        """Move the entries of segments that compaction made one into the file of the first."""
        entries = [entry for base in base_offsets for entry in self._by_segment.get(base, [])]
        self._store(base_offsets[0], entries)
        for base_offset in base_offsets[1:]:
            self._remove(base_offset)

    def _replace(self, raw: dict[int, bytes], entries: dict[int, list[AbortedTransaction]]) -> None:
        """Adopt the entries that were read, and rewrite the files that differ from them."""
        self._by_segment = {base_offset: kept for base_offset, kept in entries.items() if kept}
        self._growing = None
        for base_offset, kept in self._by_segment.items():
            if (content := b"".join(map(_encode, kept))) != raw.get(base_offset):
                try:
                    replace_file(self._disk, self._path(base_offset), content)
                except ResourcesExhausted:
                    self._unwritten.add(base_offset)
        for base_offset in raw.keys() - self._by_segment.keys():
            self._disk.remove(self._path(base_offset))

    def _store(self, base_offset: int, entries: list[AbortedTransaction]) -> None:
        if entries == self._by_segment.get(base_offset, []):
            return
        self._stop_growing(base_offset)
        if entries:
            replace_file(self._disk, self._path(base_offset), b"".join(map(_encode, entries)))
            self._by_segment[base_offset] = entries
            self._unwritten.discard(base_offset)
        else:
            self._remove(base_offset)

    def _remove(self, base_offset: int) -> None:
        if (path := self.forget_segment(base_offset)) is not None:
            self._disk.remove(path)

    def _stop_growing(self, base_offset: int) -> None:
        if self._growing is not None and self._growing[0] == base_offset:
            self._growing = None

    def _files(self) -> list[int]:
        """Base offsets of the segments that have a file here, ascending."""
        bases = [parse_name(name, SUFFIX) for name in self._disk.list(self._directory)]
        return [base for base in bases if base is not None]

    def _path(self, base_offset: int) -> Path:
        return self._directory / segment_name(base_offset, SUFFIX)


def parse_entries(raw: bytes) -> tuple[list[AbortedTransaction], bool]:
    """Return the entries of a file up to the first damage, and whether there is none."""
    entries: list[AbortedTransaction] = []
    for at in range(0, len(raw) - _SIZE + 1, _SIZE):
        if _CHECKSUM.unpack_from(raw, at + _ENTRY.size)[0] != crc32c(raw[at : at + _ENTRY.size]):
            break
        entries.append(AbortedTransaction._make(_ENTRY.unpack_from(raw, at)))
    return entries, len(entries) * _SIZE == len(raw)


def _encode(entry: AbortedTransaction) -> bytes:
    body = _ENTRY.pack(*entry)
    return body + _CHECKSUM.pack(crc32c(body))
