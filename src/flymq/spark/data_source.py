"""The Spark data source "flymq", for `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`.

Spark creates these objects in its own processes, pickles them and sends them to tasks, so they hold options and no open
connections.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from flymq.spark.error_messages import hints_in_errors
from flymq.spark.options import parse_read_options, parse_write_options
from flymq.spark.sink.writers import BatchWriter, StreamWriter
from flymq.spark.source.batch_reader import BatchReader, FilteringBatchReader
from flymq.spark.source.columns import check_schema, full_schema
from flymq.spark.source.stream_reader import StreamReader


class FlyMQDataSource(DataSource):
    """The data source "flymq" (Python Data Source API)."""

    @classmethod
    def name(cls) -> str:
        return "flymq"

    def schema(self) -> StructType:
        with hints_in_errors():
            return full_schema(include_headers=parse_read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> BatchReader:
        with hints_in_errors():
            check_schema(schema)
            options = parse_read_options(self.options)
            return (FilteringBatchReader if options.filter_pushdown else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        with hints_in_errors():
            check_schema(schema)
            return StreamReader(parse_read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        with hints_in_errors():
            return BatchWriter(parse_write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        with hints_in_errors():
            return StreamWriter(parse_write_options(self.options), schema)
