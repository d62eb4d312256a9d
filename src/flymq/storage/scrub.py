"""Check a sealed segment again while its log is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flymq.model.errors import CorruptLog, FileVanished
from flymq.storage.log import Log
from flymq.storage.segments.segment import Segment

_STEP_BYTES = 1 << 20


class SegmentScrub:
    """The scrub of one sealed segment."""

    def __init__(self, log: Log, segment: Segment) -> None:
        self._log = log
        self._segment = segment
        self._position = 0
        self._next_offset = segment.base_offset
        self._is_over = False
        self._copy: Segment | None = None

    def steps(self) -> Iterator[Callable[[], int]]:
        """Yield work for a thread that returns how many bytes it has checked. Run it before taking the next one."""
        while not self._is_over:
            yield self._step

    def _step(self) -> int:
        # A segment object of its own, with a file of its own: those of the log belong to the event loop.
        copy = self._copy = self._copy or Segment.open_sealed(
            self._log.disk,
            self._log.directory,
            self._segment.base_offset,
            next_offset=self._segment.next_offset,
            index_interval_bytes=self._log.config.index_interval_bytes,
        )
        start = self._position
        for at, header in copy.check(start, copy.size):
            self._position, self._next_offset = at + header.size, header.next_offset
            if self._position - start >= _STEP_BYTES:
                return self._position - start
        self._is_over = True
        self._check_end()
        return self._position - start

    def _check_end(self) -> None:
        """Check that the next segment follows, which is not so if one between them is gone."""
        following = self._segment.next_offset
        if self._next_offset < following and following > self._log.compacted.gaps_end:
            raise FileVanished(
                f"{self._log.directory}: the batches from offset {self._next_offset} to {following - 1} are missing"
            )

    def failed(self, error: CorruptLog | FileVanished) -> None:
        """A step failed. If retention or compaction has taken the file meanwhile, that is no damage."""
        if not any(segment is self._segment for segment in self._log.segments):
            return
        if isinstance(error, CorruptLog):
            self._log.damage.note(error)
        else:
            self._log.go_offline(error)
