"""Which bytes of a file are known to match their checksums, as ranges that neither touch nor overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

_RANGES_MAX = 64


class CheckedRanges:
    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def cover(self, start: int, end: int) -> bool:
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and self._ends[at] >= end

    def add(self, start: int, end: int) -> None:
        if self._ends and self._ends[-1] == start:  # what appending does
            self._ends[-1] = end
            return
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        if len(self._starts) > _RANGES_MAX:  # forgetting one costs a second check
            del self._starts[0], self._ends[0]

    def cut(self, end: int) -> None:
        """Forget everything from `end` on."""
        kept = bisect_left(self._starts, end)
        del self._starts[kept:], self._ends[kept:]
        if self._ends and self._ends[-1] > end:
            self._ends[-1] = end
