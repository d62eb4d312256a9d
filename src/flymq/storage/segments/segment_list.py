"""The segments of a log, in order: all but the last one are sealed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import overload

from flymq.host.disk import Disk
from flymq.storage.segments.segment import Segment

_SEALED_OPEN_MAX = 8  # sealed segments of one log whose files are held open for their readers


class SegmentList(Sequence[Segment]):
    """Segments without overlaps. `forgotten` is called for each one that is removed, replaced or cut."""

    def __init__(self, segments: list[Segment], forgotten: Callable[[Segment], None]) -> None:
        self._segments = segments
        self._forgotten = forgotten
        self._recently_read: dict[Segment, None] = {}
        self.changes = 0
        """How often segments were removed, replaced or cut. A search that paused meanwhile starts again."""
        for before, after in pairwise(segments):
            _check_order(before, after.base_offset)

    @overload
    def __getitem__(self, at: int) -> Segment: ...
    @overload
    def __getitem__(self, at: slice) -> list[Segment]: ...
    def __getitem__(self, at: int | slice) -> Segment | list[Segment]:
        return self._segments[at]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        """The last segment, which grows."""
        return self._segments[-1]

    @property
    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def position_of(self, offset: int) -> int:
        """Return the position of the segment in whose range the offset falls."""
        if offset >= self._segments[-1].base_offset:
            return len(self._segments) - 1
        return max(0, bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1)

    # --- change

    def begin(self, disk: Disk, directory: Path, base_offset: int, *, index_interval_bytes: int) -> None:
        """Begin the next segment."""
        _check_order(self.active, base_offset)
        self._segments.append(Segment.create(disk, directory, base_offset, index_interval_bytes=index_interval_bytes))

    def drop_first(self, count: int) -> list[Segment]:
        """Drop the oldest segments, and return them."""
        gone = self._segments[:count]
        del self._segments[:count]
        self._forget(gone)
        return gone

    def cut_after(self, at: int) -> list[Segment]:
        """Drop the segments after this position, and return them. The one at it will be cut."""
        gone = self._segments[at + 1 :]
        self._forget(self._segments[at:])
        del self._segments[at + 1 :]
        return gone

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Replace adjacent segments by one."""
        self._forget(old)
        at = self._segments.index(old[0])
        self._segments[at : at + len(old)] = [new]
        for before, after in pairwise(self._segments[max(0, at - 1) : at + 2]):
            _check_order(before, after.base_offset)

    def _forget(self, segments: list[Segment]) -> None:
        """Drop segments from all bookkeeping, so that nothing holds their files open."""
        self.changes += 1
        for segment in segments:
            self._recently_read.pop(segment, None)
            self._forgotten(segment)

    # --- open files

    def touch(self, segment: Segment) -> None:
        """Keep the files of the few sealed segments that were read last open."""
        if segment is self._segments[-1]:
            return
        self._recently_read.pop(segment, None)
        self._recently_read[segment] = None
        if len(self._recently_read) > _SEALED_OPEN_MAX:
            oldest = next(iter(self._recently_read))
            del self._recently_read[oldest]
            oldest.release_files()

    def release_sealed(self) -> None:
        """Close the files that are held open for readers of sealed segments."""
        for segment in self._recently_read:
            segment.release_files()
        self._recently_read.clear()

    def release_files(self) -> None:
        """Close all files."""
        for segment in self._segments:
            segment.release_files()
        self._recently_read.clear()


def _check_order(before: Segment, base_offset: int) -> None:
    assert before.base_offset < base_offset, f"segment {base_offset} does not follow {before.base_offset}"
    assert before.next_offset <= base_offset, f"{before.path} ends at {before.next_offset}, the next is {base_offset}"
