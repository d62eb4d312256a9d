"""The aggregate job: counts and sums by key in time windows, to a topic or to Parquet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from flymq.model.errors import InvalidPipeline
from flymq.spark.error_messages import first_sentence
from flymq.spark.jobs.job import SqlJob
from flymq.spark.jobs.sql_views import with_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flymq.spark.jobs.execution.runner import Run

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class AggregateJob(SqlJob, frozen=True, kw_only=True, tag="aggregate", omit_defaults=True):
    """Count a topic's records by key and window, and sum expressions."""

    to: str | None = None
    to_parquet: str | None = None
    key: str = "CAST(key AS STRING)"
    """SQL expression to group by."""
    sums: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    """SQL expressions to sum, by the name of the result."""
    time: str = "timestamp"
    """SQL expression for the event time."""
    window_ms: int = 60_000
    slide_ms: int | None = None
    """Slide interval of overlapping windows."""
    late_ms: int = 10_000
    """Watermark delay: how long a window waits for late records. Later ones are dropped."""
    start: str = "earliest"
    emit: Literal["final", "updates"] = "final"
    """Whether a window is written each time it changes, or once, when it is complete."""

    @property
    def default_name(self) -> str:
        return f"aggregate-{self.topic}"[:100]

    def run(self, run: Run) -> None:
        if (self.to is None) == (self.to_parquet is None):
            raise InvalidPipeline(
                "set exactly one target, a topic or Parquet", hint="Use one of --to and --to-parquet."
            )
        if self.to_parquet is not None and self.emit != "final":
            raise InvalidPipeline(
                "Parquet output does not support updates", hint="Remove --updates, or write to a topic."
            )
        key_file = self.encryption_key_file
        records = run.read(subscribe=self.topic, startingOffsets=self.start, encryptionKeyFile=key_file)
        windows = self._windows(with_fields(records, self.schema))
        if self.to is not None:
            mode = "append" if self.emit == "final" else "update"
            run.write(_as_records(windows), mode=mode, topic=self.to, encryptionKeyFile=key_file)
        else:
            assert self.to_parquet is not None
            run.write_parquet(windows, self.to_parquet)

    def _windows(self, records: DataFrame) -> DataFrame:
        from pyspark.errors import AnalysisException, ParseException
        from pyspark.sql.functions import count, expr, sum, window

        for name in self.sums:
            if not _NAME.match(name):
                raise InvalidPipeline(
                    f"{name!r} is not a valid name of a sum", hint="Use NAME=EXPRESSION, such as total=price * count."
                )
        try:
            timed = records.withColumn("_time", expr(self.time)).withWatermark("_time", _duration(self.late_ms))
            span = window("_time", _duration(self.window_ms), _duration(self.slide_ms or self.window_ms))
            grouped = timed.groupBy(span.alias("_window"), expr(self.key).alias("key"))
            sums = [sum(expr(source)).alias(name) for name, source in self.sums.items()]
            result = grouped.agg(count("*").alias("count"), *sums)
        except (AnalysisException, ParseException) as error:
            hint = f"The columns are {', '.join(records.columns)}."
            raise InvalidPipeline(f"invalid aggregation: {first_sentence(error)}", hint=hint) from error
        bounds = [expr("_window.start").alias("window_start"), expr("_window.end").alias("window_end")]
        return result.select(*bounds, "key", "count", *self.sums)


def _duration(count_ms: int) -> str:
    return f"{count_ms} milliseconds"


def _as_records(windows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import struct, to_json

    key = windows["key"].cast("string").alias("key")
    return windows.select(key, to_json(struct("*")).alias("value"))
