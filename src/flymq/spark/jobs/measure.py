"""How far a streaming query is, from the reports that Spark makes of its batches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flymq.spark.jobs.folder import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


class Measure:
    """Sums up batches. Records are counted by their offsets: a job may read something else than one row for each."""

    def __init__(self, before: Progress) -> None:
        self._batches = before.batches
        self._records = before.records
        self._records_per_s = 0.0
        self._behind: int | None = None
        self._last_batch: int | None = None

    def add(self, reports: Iterable[StreamingQueryProgress]) -> bool:
        """Take in the reports that are new; return whether there are any. Spark repeats itself while nothing comes."""
        is_news = False
        for report in reports:
            read = sum(_distance(source.startOffset, source.endOffset) for source in report.sources)
            behind = [
                _distance(source.endOffset, source.latestOffset) for source in report.sources if source.latestOffset
            ]
            if behind:
                is_news = is_news or sum(behind) != self._behind
                self._behind = sum(behind)
            if not read or (self._last_batch is not None and report.batchId <= self._last_batch):
                continue
            self._last_batch = report.batchId
            self._batches = max(self._batches, report.batchId + 1)
            self._records += read
            self._records_per_s = read * 1000 / max(1, report.batchDuration)
            is_news = True
        return is_news

    def changes(self) -> dict[str, Any]:
        """Return the fields of `Progress` that may have changed."""
        return {
            "batches": self._batches,
            "records": self._records,
            "records_per_s": self._records_per_s,
            "behind": self._behind,
        }


def _distance(start: str | None, end: str | None) -> int:
    """Return how many offsets lie between two of Spark's offsets of a source, which are JSON."""
    begin, finish = _offsets(start), _offsets(end)
    return sum(max(0, offset - begin.get(name, 0)) for name, offset in finish.items())


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    shaped = json.loads(text) if text else {}
    return {
        (topic, partition): offset for topic, parts in (shaped or {}).items() for partition, offset in parts.items()
    }
