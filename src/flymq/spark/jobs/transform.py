"""The transform job: SQL from topic to topic, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flymq.spark.jobs.job import SqlJob
from flymq.spark.jobs.sql_views import as_records, query, with_fields

if TYPE_CHECKING:
    from flymq.spark.jobs.execution.runner import Run


class TransformJob(SqlJob, frozen=True, kw_only=True, tag="transform", omit_defaults=True):
    """Write the result of a SQL query over a topic to another topic."""

    to: str
    sql: str
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
            encryptionKeyFile=self.encryption_key_file,
        )
        result = as_records(query(with_fields(records, self.schema), self.topic, self.sql))
        run.write(result, topic=self.to, encryptionKeyFile=self.encryption_key_file)
