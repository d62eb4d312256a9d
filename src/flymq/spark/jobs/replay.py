"""The replay job: write records of a time range, or dead letters, to a topic again, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flymq.model.errors import InvalidPipeline
from flymq.spark.jobs.job import SqlJob
from flymq.spark.jobs.sql_views import query, with_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flymq.spark.jobs.execution.runner import Run

ORIGIN_TOPIC = "flymq-origin-topic"
_OF_DEAD_LETTERS = "flymq-"
"""The prefix of headers with the origin and error of a dead letter; they are not the record's own."""


class ReplayJob(SqlJob, frozen=True, kw_only=True, tag="replay", omit_defaults=True):
    """Write records of a topic again. When restarted, it continues with the records since."""

    to: str | None = None
    """None: the origin topic of each dead letter."""
    since_ms: int | None = None
    until_ms: int | None = None
    where: str | None = None
    """SQL condition to select records; all if not set."""
    once: bool = True

    @property
    def default_name(self) -> str:
        return f"replay-{self.topic}"[:100]

    def run(self, run: Run) -> None:
        start: dict[str, Any] = {"startingOffsets": "earliest"}
        if self.since_ms is not None:
            start = {"startingTimestamp": self.since_ms, "startingOffsetsByTimestampStrategy": "latest"}
        key_file = self.encryption_key_file
        records = run.read(subscribe=self.topic, includeHeaders="true", encryptionKeyFile=key_file, **start)
        run.write(self._chosen(records), topic=self.to, includeTimestamp="true", encryptionKeyFile=key_file)

    def _chosen(self, records: DataFrame) -> DataFrame:
        from pyspark.sql.functions import col, expr, lit, timestamp_millis

        if self.since_ms is not None and self.until_ms is not None and self.until_ms <= self.since_ms:
            raise InvalidPipeline(
                "the end time is before the start time", hint="Set --until to a later time than --since."
            )
        if self.since_ms is not None:  # records need not be ordered by timestamp
            records = records.where(col("timestamp") >= timestamp_millis(lit(self.since_ms)))
        if self.until_ms is not None:
            records = records.where(col("timestamp") < timestamp_millis(lit(self.until_ms)))
        if self.where is not None:
            records = query(
                with_fields(records, self.schema), self.topic, f"SELECT * FROM `{self.topic}` WHERE {self.where}"
            )
        columns = [col("key"), col("value"), col("timestamp")]
        if self.to is not None:
            return records.select(*columns, "headers")
        origin = f"get(filter(headers, h -> h.key = '{ORIGIN_TOPIC}'), 0).value"
        own = f"filter(headers, h -> NOT startswith(h.key, '{_OF_DEAD_LETTERS}'))"
        home = expr(f"CAST({origin} AS STRING)").alias("topic")
        return records.select(*columns, expr(own).alias("headers"), home).where(col("topic").isNotNull())
