"""The transform job: SQL from topic to topic, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flymq.spark.jobs.job import Job
from flymq.spark.jobs.views import as_records, query, with_fields

if TYPE_CHECKING:
    from flymq.spark.jobs.running import Run


class TransformJob(Job, frozen=True, kw_only=True, tag="transform", omit_defaults=True):
    """Write what a query makes of a topic's records to another topic."""

    topic: str
    to: str
    sql: str
    schema: str | None = None
    start: str = "earliest"
    batch_records: int | None = None

    @property
    def default_name(self) -> str:
        return f"transform-{self.topic}-{self.to}"[:100]

    def run(self, run: Run) -> None:
        records = run.read(
            subscribe=self.topic,
            startingOffsets=self.start,
            includeHeaders="true",
            maxOffsetsPerTrigger=self.batch_records,
        )
        result = as_records(query(with_fields(records, self.schema), self.topic, self.sql))
        run.write(result, topic=self.to)
