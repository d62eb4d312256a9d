"""Batches that cannot be decoded, met by readers for whom the broker decodes: skipped, counted, and logged once.

Such a batch is from before the broker checked the records of a produce request. Clients that decode themselves decide
themselves; a reader over HTTP has no way to, and must not stop at it for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from flymq.model.errors import InvalidBatch
from flymq.model.names import TopicPartition
from flymq.record.reading import Aborted, BrokenBatch, cut_out, find_broken, parse_records
from flymq.record.record import Record

logger = logging.getLogger(__name__)

_LOGGED_MAX = 1_000


class SkippedBatches:
    """Counts batches that were skipped."""

    def __init__(self) -> None:
        self.count = 0
        self._logged: set[tuple[TopicPartition, int]] = set()

    def parse(self, name: TopicPartition, run: bytes, start_offset: int, aborted: Sequence[Aborted]) -> list[Record]:
        """Return the records of a run that can be decoded."""
        while True:
            try:
                return parse_records(run, start_offset=start_offset, aborted=aborted)
            except InvalidBatch:
                broken = find_broken(run, start_offset, aborted)
                if broken is None:
                    raise
            self._skip(name, broken)
            run = cut_out(run, broken)

    def _skip(self, name: TopicPartition, broken: BrokenBatch) -> None:
        self.count += 1
        place = (name, broken.offset)
        if place not in self._logged and len(self._logged) < _LOGGED_MAX:
            self._logged.add(place)
            logger.error(
                "%s: the batch at offset %d cannot be decoded: %s; readers over HTTP continue at offset %d",
                name,
                broken.offset,
                broken.error.message,
                broken.next_offset,
            )
