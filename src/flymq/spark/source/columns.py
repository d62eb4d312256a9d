"""The columns of a topic, those of Spark's Kafka connector, in Arrow.

| column | type |
|---|---|
| key, value | binary, nullable |
| topic | string |
| partition | int |
| offset | long |
| timestamp | timestamp |
| timestampType | int: 0 create time, 1 log append time |
| headers | array of struct of key: string and value: binary; with `includeHeaders` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from flymq.client.encryption import Cipher
from flymq.model.errors import InvalidColumns
from flymq.record.arrow import columns_of
from flymq.record.compression import DECOMPRESSED_BYTES_MAX
from flymq.record.reading import visible
from flymq.record.shapes import Section
from flymq.spark.encryption import decrypted
from flymq.spark.source.fetching import Run
from flymq.spark.source.planning import OffsetRange

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}

_MILLISECONDS = pa.timestamp("ms", tz="UTC")


def full_schema(*, include_headers: bool) -> StructType:
    """Return all columns, in the order of Spark's Kafka connector."""
    names = [name for name in TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, TYPES[name]) for name in names])


def check_schema(schema: StructType) -> None:
    """Check a user's schema: it can only select from the columns of a topic."""
    for column in schema.fields:
        if column.name not in TYPES:
            raise InvalidColumns(
                f"topics have no column {column.name!r}",
                hint=f"Select from {', '.join(TYPES)}; decode the value later.",
            )
        wanted = TYPES[column.name]
        if column.dataType != wanted:
            raise InvalidColumns(
                f"the column {column.name} is {wanted.simpleString()}, not {column.dataType.simpleString()}",
                hint="Read it with its own type, and cast or decode it later.",
            )


class RangeColumns:
    """Converts the fetched batches of one range to Arrow record batches with the selected columns."""

    def __init__(self, schema: StructType, range_: OffsetRange, cipher: Cipher | None) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._range = range_
        self._cipher = cipher
        self._topics = pa.array([], pa.string())
        self._makers = [_MAKERS[name] for name in self._schema.names]

    def parse(self, run: Run) -> Iterator[pa.RecordBatch]:
        """Yield the records of a run that are in the range."""
        sections = visible(run.batches, run.start_offset, run.aborted, DECOMPRESSED_BYTES_MAX)
        for has_append_time, group in groupby(sections, _has_append_time):
            columns = self._cut(columns_of(list(group), run.start_offset))
            if columns.num_rows:
                if self._cipher is not None:
                    columns = decrypted(columns, self._cipher, self._range.name)
                arrays = [maker(self, columns, has_append_time) for maker in self._makers]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _cut(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the records beyond the end of the range; batches can extend past it."""
        offsets = columns.column("offset").to_numpy()
        if len(offsets) and offsets[-1] >= self._range.end:
            return columns.slice(0, int(np.searchsorted(offsets, self._range.end)))
        return columns

    # --- one column each

    def _topic(self, columns: pa.RecordBatch, has_append_time: bool) -> pa.Array:
        if len(self._topics) < columns.num_rows:
            self._topics = pa.repeat(pa.scalar(self._range.topic, pa.string()), columns.num_rows)
        return self._topics.slice(0, columns.num_rows)

    def _partition(self, columns: pa.RecordBatch, has_append_time: bool) -> pa.Array:
        return _all_equal(self._range.partition, columns.num_rows)

    def _timestamp(self, columns: pa.RecordBatch, has_append_time: bool) -> pa.Array:
        milliseconds = columns.column("timestamp").view(_MILLISECONDS)
        return milliseconds.cast(self._schema.field("timestamp").type, safe=False)

    def _timestamp_type(self, columns: pa.RecordBatch, has_append_time: bool) -> pa.Array:
        return _all_equal(int(has_append_time), columns.num_rows)

    def _headers(self, columns: pa.RecordBatch, has_append_time: bool) -> pa.Array:
        return columns.column("headers").cast(self._schema.field("headers").type)


_Maker = Callable[[RangeColumns, pa.RecordBatch, bool], pa.Array]

_MAKERS: dict[str, _Maker] = {
    "key": lambda self, columns, _: columns.column("key"),
    "value": lambda self, columns, _: columns.column("value"),
    "offset": lambda self, columns, _: columns.column("offset"),
    "topic": RangeColumns._topic,
    "partition": RangeColumns._partition,
    "timestamp": RangeColumns._timestamp,
    "timestampType": RangeColumns._timestamp_type,
    "headers": RangeColumns._headers,
}


def _has_append_time(section: Section) -> bool:
    return section.append_time_ms is not None


def _all_equal(number: int, count: int) -> pa.Array:
    return pa.array(np.full(count, number, dtype=np.int32))
