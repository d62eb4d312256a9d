"""Records as Arrow columns, for Spark and DataFrames. The only module here that imports pyarrow.

| column | type |
|---|---|
| offset | int64 |
| timestamp | int64 milliseconds, or the requested Arrow type |
| key, value | binary, nullable |
| headers | list of struct of key: string and value: binary, nullable |
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flymq.model.errors import InvalidBatch
from flymq.record import codec
from flymq.record.compression import DECOMPRESSED_BYTES_MAX
from flymq.record.header import Buffer
from flymq.record.reading import Aborted, visible
from flymq.record.shapes import BinaryColumn, Columns, RecordColumns, Section

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_MILLISECONDS = pa.timestamp("ms", tz="UTC")


def schema(timestamp_type: pa.DataType | None = None) -> pa.Schema:
    """Return the schema of `parse_columns`."""
    return pa.schema(
        [
            ("offset", pa.int64()),
            ("timestamp", timestamp_type or pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(_HEADER)),
        ]
    )


_SCHEMA = schema()


def parse_columns(
    run: Buffer,
    *,
    start_offset: int = 0,
    aborted: Sequence[Aborted] = (),
    timestamp_type: pa.DataType | None = None,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> pa.RecordBatch:
    """Return what `reading.parse_records` would return, as columns.

    The timestamp is int64 milliseconds unless `timestamp_type` says otherwise, as in `pa.timestamp("us", tz="UTC")`.
    """
    sections = list(visible(run, start_offset, aborted, decompressed_bytes_max))
    columns = columns_of(sections, start_offset)
    return columns if timestamp_type is None else _with_timestamps(columns, timestamp_type)


def columns_of(sections: Sequence[Section], start_offset: int) -> pa.RecordBatch:
    """Return the records of decompressed batches from `start_offset` on, with the timestamp in milliseconds."""
    return _record_batch(codec.parse_columns(sections, start_offset))


def record_columns(
    value: pa.Array, key: pa.Array | None = None, headers: pa.Array | None = None, timestamp_ms: pa.Array | None = None
) -> RecordColumns:
    """Return the buffers of records to be written, for `encode_column_batch`: key and value may be strings or bytes.

    No copy is made, unless an array is a slice of a larger one.
    """
    names = contents = ends = None
    header_count = 0
    if headers is not None:
        lists = _whole(headers)
        ends = lists.buffers()[1]
        header_count = len(lists.values)
        names, contents = (_binary(_whole(lists.values.field(name))) for name in ("key", "value"))
    return RecordColumns(
        row_count=len(value),
        value=_binary(_whole(value)),
        key=None if key is None else _binary(_whole(key)),
        timestamp_ms=None if timestamp_ms is None else _whole(timestamp_ms).buffers()[1],
        header_ends=ends,
        header_count=header_count,
        header_name=names,
        header_value=contents,
    )


def _whole(array: pa.Array) -> pa.Array:
    """Return an array without an offset into its buffers."""
    return array if array.offset == 0 else array.take(pa.array(range(len(array)), pa.int64()))


def _binary(array: pa.Array) -> BinaryColumn:
    validity, ends, data = array.cast(pa.binary()).buffers()
    return BinaryColumn(array.null_count, validity if array.null_count else None, ends or bytes(4), data or b"")


def _record_batch(columns: Columns) -> pa.RecordBatch:
    """Wrap the buffers without a copy."""
    count, header_count = columns.row_count, columns.header_count
    names = _strings(pa.string(), header_count, columns.header_name)
    contents = _strings(pa.binary(), header_count, columns.header_value)
    headers = pa.Array.from_buffers(_HEADER, header_count, [None], children=[names, contents], null_count=0)
    header_ends = [None, pa.py_buffer(columns.header_ends)]
    arrays = [
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offset)], null_count=0),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.timestamp_ms)], null_count=0),
        _strings(pa.binary(), count, columns.key),
        _strings(pa.binary(), count, columns.value),
        pa.Array.from_buffers(_SCHEMA.field(4).type, count, header_ends, children=[headers], null_count=0),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _strings(type_: pa.DataType, count: int, column: BinaryColumn) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(type_, count, buffers, null_count=column.null_count)


def _with_timestamps(columns: pa.RecordBatch, timestamp_type: pa.DataType) -> pa.RecordBatch:
    try:
        timestamps = columns.column("timestamp").view(_MILLISECONDS).cast(timestamp_type)
    except pa.ArrowInvalid as fault:
        raise InvalidBatch(f"a record's timestamp does not fit into {timestamp_type}") from fault
    arrays = [*columns.columns[:1], timestamps, *columns.columns[2:]]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(timestamp_type))
