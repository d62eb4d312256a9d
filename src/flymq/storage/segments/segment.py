"""One file of batches, exactly as they were received, with its two indexes.

    <base offset>.log         batches, one after the other; named by the first offset it may hold, in 20 digits
    <base offset>.index       see index.py
    <base offset>.timeindex

A batch that was written before this process started is checked against its checksum the first time it is read, so
corrupted bytes are reported and never served. Base offsets lie outside the checksum (header.py); they are
checked against those of the batches around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from flymq.host.disk import Buffer, Disk, File, write_aside
from flymq.model.errors import CorruptLog, InvalidBatch, StorageError
from flymq.record.header import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, check_batch, parse_header
from flymq.storage.segments.checked_ranges import CheckedRanges
from flymq.storage.segments.index import OffsetIndex, TimeIndex

DATA_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"

OFFSETS_MAX = (1 << 31) - 1
"""Largest distance of an offset from the base offset of its segment."""

_NAME_DIGITS = 20
_WALK_BYTES = 4096  # read at once while walking from header to header
_CHECK_BYTES = 1 << 20  # read at once while checking checksums
_HINTS_MAX = 64


@dataclass(slots=True)
class LogSlice:
    """Whole batches in a file: what a connection sends, by sendfile or by reading them."""

    file: File
    position: int
    length: int
    offsets: int
    """How many offsets it covers from the one asked for on: its records, and whatever lies between them."""

    in_memory: ClassVar[Literal[False]] = False

    @property
    def descriptor(self) -> int | None:
        """Of the file, for sendfile from `position` on; None when the bytes must be read."""
        return self.file.fileno()

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position)

    def read_part(self, start: int, bytes_max: int) -> bytes:
        """Return up to `bytes_max` bytes from the byte `start` of the slice on."""
        return self.file.pread(min(bytes_max, self.length - start), self.position + start)


class Segment:
    """The batches from `base_offset` up to, not with, `next_offset`."""

    def __init__(self, disk: Disk, directory: Path, base_offset: int, *, index_interval_bytes: int) -> None:
        self._disk = disk
        self._path = directory / segment_name(base_offset, DATA_SUFFIX)
        self._interval = index_interval_bytes
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self._is_sealed = False
        self._is_torn = False  # the file may be longer than `size`: an append failed and could not be cut back
        self._holds_files = False
        self.written_since_ms: int | None = None  # when the first batch came, for rolling by age
        self._max_timestamp: int | None = NO_TIMESTAMP  # None: the last entry of the time index knows
        self._file: File | None = None
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._indexed_until = 0  # no entry is due before `_interval` bytes after this position
        self._checked = CheckedRanges()
        self._hints: dict[int, int] = {}  # offset where a reader will continue → its position

    # --- opening and closing

    @classmethod
    def create(cls, disk: Disk, directory: Path, base_offset: int, *, index_interval_bytes: int) -> Segment:
        """Create an empty segment. Files of the same name, left by a crash, are truncated."""
        segment = cls(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        segment.remove_indexes()
        segment._file = disk.open(segment.path)
        try:
            segment._file.truncate(0)
        except StorageError:
            with suppress(StorageError):  # the segment before may grow beyond the offset of its name
                disk.remove(segment.path)
            raise
        segment._offsets, segment._times = OffsetIndex(), TimeIndex()
        return segment

    @classmethod
    def open_sealed(
        cls, disk: Disk, directory: Path, base_offset: int, *, next_offset: int, index_interval_bytes: int
    ) -> Segment:
        """Return a segment that no longer grows, without opening its files: a log may have many."""
        segment = cls(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        segment.next_offset = next_offset
        segment._is_sealed = True
        segment.size = disk.size(segment.path)
        segment._max_timestamp = None
        return segment

    def copy_sealed(self) -> Segment:
        """Return another object for the same files, for use in a thread. Opens no file."""
        assert self._is_sealed, f"{self._path} is not sealed"
        copy = Segment(self._disk, self._path.parent, self.base_offset, index_interval_bytes=self._interval)
        copy.next_offset, copy.size = self.next_offset, self.size
        copy._is_sealed, copy._max_timestamp = True, None
        return copy

    @property
    def path(self) -> Path:
        return self._path

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open_existing(self._path)
        return self._file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def offsets(self) -> OffsetIndex:
        if self._offsets is None:
            self._load_indexes()
        assert self._offsets is not None
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        if self._times is None:
            self._load_indexes()
        assert self._times is not None
        return self._times

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether asking for the latest time reads no file."""
        return self._max_timestamp is not None

    def take_max_timestamp(self, timestamp: int) -> None:
        """Take the latest time that a copy of this segment has read."""
        self._max_timestamp = timestamp

    @property
    def max_timestamp(self) -> int:
        """The latest time of any record."""
        if self._max_timestamp is None:
            was_open = self._times is not None
            self._max_timestamp = self.times.last_timestamp
            if not was_open:
                self._offsets = self._times = None  # retention asks for it on segments that are not read
        return self._max_timestamp

    def make_writable(self, position: int) -> None:
        """Prepare to append at `position`, where a batch ends. From here on the indexes grow in memory."""
        self._is_sealed = False
        self.size = position
        if position == 0:
            self._offsets, self._times = OffsetIndex(), TimeIndex()
        self._offsets = self.offsets.cut(position)
        self._times = self.times.first(len(self._offsets))
        self._indexed_until = self._offsets.last_position
        self._max_timestamp = self._times.last_timestamp
        self.next_offset = self.base_offset
        self._hints.clear()
        for at, header in self.check(self._indexed_until, position):
            self.note(header, at)

    def save_indexes(self) -> None:
        """Write the index files. Without fsync: a crash may lose or tear them, and they are built again."""
        self.begin_save_indexes()()

    def begin_save_indexes(self) -> Callable[[], None]:
        """Return the work that writes the index files as they are now."""
        offsets, times = self.offsets.to_bytes(), self.times.to_bytes(self.max_timestamp, self.size)

        def save() -> None:
            write_aside(self._disk, self._path.with_suffix(INDEX_SUFFIX), offsets)
            write_aside(self._disk, self._path.with_suffix(TIME_INDEX_SUFFIX), times)

        return save

    def seal(self) -> None:
        """No batch comes any more: save the indexes and let the next reader map them.

        If they cannot be saved, it is sealed nevertheless, with its indexes in memory.
        """
        self._is_sealed = True
        self.save_indexes()
        self._offsets = self._times = None

    def hold_files(self) -> None:
        """Open the files of a sealed segment and keep them open until the segment is dropped."""
        assert self._is_sealed, f"{self._path} is not sealed"
        self._load_indexes()
        self._file = self.file
        self._holds_files = True

    def release_files(self) -> None:
        """Close the files of a sealed segment; they are opened again on demand."""
        if not self._holds_files:
            self._file = self._offsets = self._times = None

    def remove_indexes(self) -> None:
        self._offsets = self._times = None
        self._disk.remove(self._path.with_suffix(INDEX_SUFFIX))
        self._disk.remove(self._path.with_suffix(TIME_INDEX_SUFFIX))

    def remove(self) -> None:
        """Remove the files. Slices of them can still be read."""
        self.remove_indexes()
        self._disk.remove(self._path)
        self._file = None

    # --- writing

    def append(self, pieces: Sequence[Buffer], headers: Sequence[BatchHeader]) -> None:
        """Write batches whose bytes are `pieces` and whose assigned headers are `headers`."""
        assert not self._is_sealed, f"{self._path} is sealed"
        assert headers[0].base_offset >= self.next_offset, f"{headers[0].base_offset} comes before {self.next_offset}"
        start, file = self.size, self._file or self.file
        if self._is_torn:
            self.cut_torn()
        try:
            file.append(pieces)
        except StorageError:
            self._is_torn = True
            with suppress(StorageError):  # tried again before the next append; after a crash, opening cuts it off
                self.cut_torn()
            raise
        for header in headers:
            self.note(header, self.size)
        self._checked.add(start, self.size)

    def cut_torn(self) -> None:
        """Remove what a failed append left after the last batch."""
        if self._is_torn:
            self.file.truncate(self.size)
            self._is_torn = False

    def note(self, header: BatchHeader, position: int) -> None:
        """Account for the batch at `position`, the next one of the file; index it when an entry is due."""
        if position > self._indexed_until and position - self._indexed_until >= self._interval:
            self.offsets.add(header.base_offset - self.base_offset, position)
            self.times.add(self.max_timestamp, position)
            self._indexed_until = position
        if self._max_timestamp is None or header.max_timestamp > self._max_timestamp:
            self._max_timestamp = max(header.max_timestamp, self.max_timestamp)
        self.size = position + header.size
        self.next_offset = header.next_offset

    def truncate(self, position: int) -> None:
        """Drop everything from `position` on, a batch's beginning, and be ready to append there."""
        self._load_indexes()  # while they still match the size
        self.make_writable(position)
        self.file.truncate(position)
        self._is_torn = False
        self._checked.cut(position)

    # --- reading

    def walk(self, start: int, end: int, least_offset: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the batches in [start, end). The first one begins at `least_offset` or later."""
        position, next_offset = start, max(least_offset, self.base_offset)
        chunk, chunk_start = b"", start
        while position < end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = self.file.pread(_WALK_BYTES, position), position, 0
            try:
                header = parse_header(chunk, at)
                if position + header.size > end:
                    raise InvalidBatch(f"the batch says {header.size} bytes, {end - position} are there")
                self._check_order(header, next_offset)
            except InvalidBatch as error:
                raise self._corrupt(position, error) from error
            yield position, header
            position += header.size
            next_offset = header.next_offset

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return the batch that holds `offset`, or else the first one after it."""
        start, least_offset = self._hints.get(offset), offset
        if start is None:
            relative_offset, start = self.offsets.floor_of_offset(max(0, offset - self.base_offset))
            least_offset = self.base_offset + relative_offset
        for position, header in self.walk(start, self.size, least_offset):
            if header.last_offset >= offset:
                if header.next_offset > self.next_offset:
                    raise self._corrupt(position, _reaches_too_far(header.next_offset))
                return position, header
        return None

    def find_since(self, timestamp: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the batches that may have a record of this time or later."""
        if timestamp > self.max_timestamp:
            return
        for position, header in self.walk(self.times.floor(timestamp), self.size):
            if header.max_timestamp >= timestamp:
                yield position, header

    def read(self, position: int, header: BatchHeader) -> bytes:
        """Return the whole batch at `position`, checked."""
        self._ensure_checked(position, position + header.size)
        return self.file.pread(header.size, position)

    def slice(self, offset: int, *, bytes_max: int, end_offset: int) -> LogSlice | None:
        """Return whole batches from the one that holds `offset`, at least one, that lie before `end_offset`."""
        at = self._hints.get(offset)
        if at is not None and at < self.size <= at + bytes_max and end_offset >= self.next_offset:
            return self._tail(offset, at)
        found = self.find(offset)
        if found is None or found[1].last_offset >= end_offset:
            return None
        start, first = found
        limit = self.size, self.next_offset
        if end_offset < self.next_offset:
            after = self.find(end_offset)
            limit = limit if after is None else (after[0], after[1].base_offset)
        end, next_offset = self._align(start, first, start + bytes_max, limit)
        self._ensure_checked(start, end)
        if end == self.size:
            self._hint(self.next_offset, end)
        return LogSlice(self.file, start, end - start, next_offset - max(offset, first.base_offset))

    def _tail(self, offset: int, start: int) -> LogSlice:
        """Return everything from `start` on, where the batch of `offset` begins: what a reader at the end asks for."""
        self._ensure_checked(start, self.size)
        self._hint(self.next_offset, self.size)
        return LogSlice(self.file, start, self.size - start, self.next_offset - offset)

    def _align(self, start: int, first: BatchHeader, wanted: int, limit: tuple[int, int]) -> tuple[int, int]:
        """Return where the last batch ends that ends at or before `wanted`, at least the first, and the next offset."""
        if wanted >= limit[0]:
            return limit
        end, next_offset = start + first.size, first.next_offset
        for position, header in self.walk(max(end, self.offsets.floor_of_position(wanted)), limit[0]):
            if position > wanted:
                break
            end, next_offset = position, header.base_offset
            self._hint(header.base_offset, position)
        return end, next_offset

    def _hint(self, offset: int, position: int) -> None:
        """Remember where a reader will most likely continue."""
        if len(self._hints) >= _HINTS_MAX:
            del self._hints[next(iter(self._hints))]
        self._hints[offset] = position

    # --- checking

    def _ensure_checked(self, start: int, end: int) -> None:
        """Check the batches in [start, end) unless that has been done."""
        if self._checked.cover(start, end):
            return
        next_offset = self.base_offset
        for _, header in self.check(start, end):
            next_offset = header.next_offset
        # A base offset that was corrupted upwards shows only against the next batch.
        following = next(self.walk(end, self.size), None)
        if next_offset > (self.next_offset if following is None else following[1].base_offset):
            raise self._corrupt(start, _reaches_too_far(next_offset))
        self.mark_checked(start, end)

    def mark_checked(self, start: int, end: int) -> None:
        """Remember that the checksums in [start, end) were right."""
        self._checked.add(start, end)

    def check(self, start: int, end: int, least_offset: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each good batch in [start, end); raise CorruptLog at the first other one."""
        for position, header, _ in self.read_checked(start, end, least_offset):
            yield position, header

    def read_checked(
        self, start: int, end: int, least_offset: int = 0
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Like `check`, with the bytes of each batch."""
        position, next_offset = start, max(least_offset, self.base_offset)
        chunk, at = memoryview(b""), 0
        while position < end:
            try:
                if len(chunk) - at < HEADER_SIZE or len(chunk) - at < parse_header(chunk, at).size:
                    chunk, at = self._chunk(position, end), 0
                header = check_batch(chunk, at)
                self._check_order(header, next_offset)
            except InvalidBatch as error:
                raise self._corrupt(position, error) from error
            yield position, header, chunk[at : at + header.size]
            at += header.size
            position += header.size
            next_offset = header.next_offset

    def _chunk(self, position: int, end: int) -> memoryview:
        """Read a chunk that holds the batch at `position` whole, if it is."""
        chunk = self.file.pread(min(_CHECK_BYTES, end - position), position)
        size = parse_header(chunk).size
        if size > len(chunk) and position + size <= end:
            chunk = self.file.pread(size, position)
        return memoryview(chunk)

    def _check_order(self, header: BatchHeader, next_offset: int) -> None:
        if header.base_offset < next_offset:
            raise InvalidBatch(f"its offsets begin at {header.base_offset}, the ones before it end at {next_offset}")
        if header.last_offset - self.base_offset > OFFSETS_MAX:
            raise _reaches_too_far(header.next_offset)

    def _corrupt(self, position: int, error: InvalidBatch) -> CorruptLog:
        return CorruptLog(f"{self._path} at byte {position}: {error}")

    def _load_indexes(self) -> None:
        """Map the saved indexes, or build them from the batches when they do not fit."""
        if self._offsets is not None and self._times is not None:
            return
        self._offsets = OffsetIndex.map(self._disk, self._path.with_suffix(INDEX_SUFFIX))
        self._times = TimeIndex.map(self._disk, self._path.with_suffix(TIME_INDEX_SUFFIX))
        if (
            self._offsets is None
            or self._times is None
            or len(self._times) != len(self._offsets) + 1
            or self._times.last_position != self.size
        ):
            self._rebuild_indexes()

    def _rebuild_indexes(self) -> None:
        """Build both indexes from the batches alone, as if they had just been appended."""
        size, next_offset = self.size, self.next_offset
        self._offsets, self._times, self._indexed_until = OffsetIndex(), TimeIndex(), 0
        self._max_timestamp = NO_TIMESTAMP
        try:
            for position, header in self.walk(0, size):
                self.note(header, position)
        except StorageError:
            self._offsets = self._times = self._max_timestamp = None
            raise
        finally:
            self.size, self.next_offset = size, next_offset
        with suppress(StorageError):  # a full disk must not prevent reading
            self.save_indexes()


def segment_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:0{_NAME_DIGITS}d}{suffix}"


def parse_name(name: str, suffix: str) -> int | None:
    """Return the offset a file is named by; None for any other file."""
    digits = name.removesuffix(suffix)
    named_so = len(digits) == _NAME_DIGITS and digits.isascii() and digits.isdecimal()
    return int(digits) if named_so and digits + suffix == name else None


def _reaches_too_far(next_offset: int) -> InvalidBatch:
    return InvalidBatch(f"its offsets reach to {next_offset}, beyond those that follow")
