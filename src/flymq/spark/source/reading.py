"""Read an offset range in a task of a batch or a stream."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from flymq.spark.broker_connection import connect
from flymq.spark.error_messages import hints_in_errors
from flymq.spark.options import ReadOptions
from flymq.spark.source.columns import RangeColumns
from flymq.spark.source.corrupt_batches import parse_run
from flymq.spark.source.fetching import RangeFetch
from flymq.spark.source.planning import OffsetRange


def read_range(options: ReadOptions, schema: StructType, range_: OffsetRange | None) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range; nothing for the empty task that Spark creates when there are no ranges."""
    if range_ is None:
        return
    with hints_in_errors():
        fetch = RangeFetch(
            connect(options.connection(), expects_broker=True),
            isolation=options.isolation,
            fetch_bytes=options.fetch_bytes,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        columns = RangeColumns(schema, range_, options.cipher())
        for run in fetch.runs(range_):
            yield from parse_run(
                run, range_.name, lambda run: list(columns.parse(run)), fail_on_data_loss=options.fail_on_data_loss
            )
