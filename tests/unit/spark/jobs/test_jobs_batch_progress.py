"""How far a pipeline is, from what Spark reports."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from flymq.spark.jobs.execution.batch_progress import Measure, records_read
from flymq.spark.jobs.execution.pipeline_state import Progress


def report(batch: int, start: int | None, end: int, latest: int | None = None, *, rows: int = 0) -> Any:
    def offset(at: int | None) -> str | None:
        return None if at is None else json.dumps({"orders": {"0": at, "1": 5}})

    source = SimpleNamespace(startOffset=offset(start), endOffset=offset(end), latestOffset=offset(latest))
    return SimpleNamespace(batchId=batch, sources=[source], numInputRows=rows, batchDuration=500)


def test_records_are_counted_by_offsets_and_those_of_the_first_batch_by_rows() -> None:
    measure = Measure(Progress(), records_read)
    assert measure.add([report(0, None, 100, 250, rows=40), report(1, 100, 200, 250)])
    assert measure.changes() == {"batches": 2, "records": 140, "records_per_s": 200.0, "behind": 50}


def test_a_report_that_comes_again_changes_nothing() -> None:
    measure = Measure(Progress(), records_read)
    measure.add([report(0, 0, 100, 100)])
    assert not measure.add([report(0, 0, 100, 100), report(1, 100, 100, 100)])
    assert measure.changes()["records"] == 100


def test_a_job_that_goes_on_adds_to_what_it_had() -> None:
    measure = Measure(Progress(batches=3, records=1000), records_read)
    measure.add([report(3, 100, 150)])
    assert measure.changes() == {"batches": 4, "records": 1050, "records_per_s": 100.0, "behind": None}
