"""Find a record by its time, in steps (host/tasks.py).

A log can have thousands of segments, so the search pauses between them. A batch can have millions of records, so it is
read and searched in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from flymq.host.disk import File
from flymq.host.tasks import Steps
from flymq.model.errors import CorruptLog, InvalidBatch, StorageError
from flymq.record import codec
from flymq.record.batch import unpack
from flymq.record.compression import DECOMPRESSED_BYTES_MAX
from flymq.record.header import BatchHeader, Buffer, check_batch
from flymq.record.shapes import Section
from flymq.storage.segments.segment import Segment


class TimedOffset(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


class SegmentsChanged(Exception):
    """Segments were removed or replaced while the search paused: it must start again."""


Scan = Callable[[Section], tuple[int, int] | None]
"""Finds offset and time of one record of a batch."""


def first_since(timestamp: int, start_offset: int) -> Scan:
    """Find the first record from `start_offset` on that is of this time or later."""
    return lambda section: codec.find_time(section, timestamp, start_offset)


def latest_of(start_offset: int) -> Scan:
    """Find the first record from `start_offset` on that has the latest time of its batch."""
    return lambda section: codec.find_latest_time(section, start_offset)


def scan_batch(header: BatchHeader, batch: Buffer, scan: Scan, start_offset: int) -> TimedOffset | None:
    """Search one checked batch. A control batch has no record, since consumers do not see it."""
    if header.is_control or header.last_offset < start_offset:
        return None
    try:
        found = scan(unpack(batch, 0, header, DECOMPRESSED_BYTES_MAX))
    except InvalidBatch:
        # The checksum is right, so a client wrote it like this. The header alone still has offset and time.
        return TimedOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)
    return None if found is None else TimedOffset(*found, header.leader_epoch)


@dataclass(slots=True)
class TimeSearch:
    """A search of these segments, which are the log's own."""

    segments: Sequence[Segment]
    start_offset: int
    touch: Callable[[Segment], None]
    """Called before the files of a segment are read."""
    is_current: Callable[[], bool]
    """Whether the log still has these segments."""

    def find(self, timestamp: int) -> Steps[TimedOffset | None]:
        """Return the first record of this time or later."""
        scan = first_since(timestamp, self.start_offset)
        for segment in self.segments:
            yield from self._pause()
            if (found := (yield from self._first(segment, timestamp, scan))) is not None:
                return found
        return None

    def find_latest(self) -> Steps[TimedOffset | None]:
        """Return the first record that has the latest time of all."""
        latest: TimedOffset | None = None
        for segment in reversed(self.segments):
            yield from self._pause()
            if latest is not None and segment.max_timestamp < latest.timestamp:
                continue
            newest = first_since(segment.max_timestamp, self.start_offset)
            found = yield from self._first(segment, segment.max_timestamp, newest)
            if found is None:  # deleting or compacting may have removed the one record of the segment's latest time
                found = yield from self._latest(segment)
            if found is not None and (latest is None or found.timestamp >= latest.timestamp):
                latest = found
        return latest

    def _first(self, segment: Segment, timestamp: int, scan: Scan) -> Steps[TimedOffset | None]:
        for position, header in self._batches(segment, timestamp):
            found = yield from self._scan(segment, position, header, scan)
            if found is not None and found.timestamp >= timestamp:
                return found
        return None

    def _latest(self, segment: Segment) -> Steps[TimedOffset | None]:
        latest: TimedOffset | None = None
        scan = latest_of(self.start_offset)
        for position, header in self._batches(segment, 0):
            found = yield from self._scan(segment, position, header, scan)
            if found is not None and found.timestamp >= 0 and (latest is None or found.timestamp > latest.timestamp):
                latest = found
        return latest

    def _batches(self, segment: Segment, timestamp: int) -> Iterable[tuple[int, BatchHeader]]:
        """Return positions and headers of the batches that may have a record of this time or later."""
        if segment.next_offset <= self.start_offset or segment.max_timestamp < max(timestamp, 0):
            return ()
        self.touch(segment)
        return segment.find_since(timestamp)

    def _scan(self, segment: Segment, position: int, header: BatchHeader, scan: Scan) -> Steps[TimedOffset | None]:
        found: TimedOffset | None = yield partial(self._read_and_scan, segment.file, segment, position, header, scan)
        self._check_current()
        return found

    def _read_and_scan(
        self, file: File, segment: Segment, position: int, header: BatchHeader, scan: Scan
    ) -> TimedOffset | None:
        """In a thread. The file is passed in, since the segment may close its own meanwhile."""
        batch = file.pread(header.size, position)
        try:
            check_batch(batch)
        except InvalidBatch as error:
            raise CorruptLog(f"{segment.path} at byte {position}: {error}") from error
        return scan_batch(header, batch, scan, self.start_offset)

    def _pause(self) -> Steps[None]:
        yield None
        self._check_current()

    def _check_current(self) -> None:
        if not self.is_current():
            raise SegmentsChanged


def load_times(sealed: Sequence[Segment]) -> Steps[None]:
    """Load the latest time of each of these segments, in a thread: it is in a file for each, and there may be many."""
    unknown = [segment for segment in sealed if not segment.knows_max_timestamp]
    if unknown:
        for segment, timestamp in zip(unknown, (yield partial(_max_timestamps, unknown)), strict=True):
            if timestamp is not None:
                segment.take_max_timestamp(timestamp)


def _max_timestamps(segments: list[Segment]) -> list[int | None]:
    """Return the latest time of each segment; None for one that was removed meanwhile or cannot be read.

    In a thread, so by copies: the segments themselves belong to the event loop.
    """
    found: list[int | None] = []
    for segment in segments:
        try:
            found.append(segment.copy_sealed().max_timestamp)
        except StorageError:  # whoever needs it gets the error
            found.append(None)
    return found
