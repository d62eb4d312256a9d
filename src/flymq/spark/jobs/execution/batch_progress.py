"""The progress of a streaming query, from Spark's progress reports of its batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from flymq.spark.jobs.execution.pipeline_state import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    Report: TypeAlias = StreamingQueryProgress

CountRecords: TypeAlias = "Callable[[Report], int]"


def records_read(report: Report) -> int:
    """Return the number of records of a batch, by its offsets: Spark's row count is higher if a job reads rows twice.

    Only the first batch of a query has no start offsets in its report.
    """
    if all(source.startOffset for source in report.sources):
        return sum(_distance(source.startOffset, source.endOffset) for source in report.sources)
    return int(report.numInputRows)


class Measure:
    """The sum over batches."""

    def __init__(self, before: Progress, count: CountRecords) -> None:
        self._count = count
        self.batches = before.batches
        self._records = before.records
        self._records_per_s = 0.0
        self._behind: int | None = None
        self._last_batch = -1

    def add(self, reports: Iterable[Report]) -> bool:
        """Add the new reports; return whether there are any. Spark repeats the last report of an idle query."""
        before = self.changes()
        for report in reports:
            ends = [(source.endOffset, source.latestOffset) for source in report.sources]
            self._behind = sum(_distance(*end) for end in ends) if all(latest for _, latest in ends) else None
            if report.batchId > self._last_batch and (records := self._count(report)):
                self._last_batch = report.batchId
                self.batches = max(self.batches, report.batchId + 1)
                self._records += records
                self._records_per_s = records * 1000 / max(1, report.batchDuration)
        return self.changes() != before

    def changes(self) -> dict[str, Any]:
        """Return the current values of the fields of `Progress`."""
        return {
            "batches": self.batches,
            "records": self._records,
            "records_per_s": self._records_per_s,
            "behind": self._behind,
        }


def _distance(start: str | None, end: str | None) -> int:
    """Return the number of offsets between two source offsets in Spark's JSON."""
    begin = _offsets(start)
    return sum(max(0, offset - begin.get(name, 0)) for name, offset in _offsets(end).items())


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    shaped = json.loads(text) if text else {}
    return {
        (topic, partition): offset for topic, parts in (shaped or {}).items() for partition, offset in parts.items()
    }
