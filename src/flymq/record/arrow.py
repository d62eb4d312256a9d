"""Records as Arrow columns, for Spark and data frames. Needs pyarrow, which is imported at the first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flymq.model.errors import DecompressedTooLarge, InvalidBatch
from flymq.record import codec
from flymq.record.compression import DECOMPRESSED_BYTES_MAX
from flymq.record.header import Buffer
from flymq.record.reading import visible
from flymq.record.record import BinaryColumn, Columns

if TYPE_CHECKING:
    import pyarrow as pa

RUN_BYTES_MAX = (1 << 31) - 1
"""Arrow's `binary` counts bytes in 32 bits."""


def parse_columns(
    run: Buffer,
    *,
    start_offset: int = 0,
    aborted: Sequence[tuple[int, int]] = (),
    timestamp_type: pa.DataType | None = None,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> pa.RecordBatch:
    """Return what `reading.parse_records` would return as columns offset, timestamp, key, value and headers.

    The timestamp is int64 milliseconds, or of the Arrow `timestamp_type` that is asked for.
    """
    sections = visible(run, start_offset, aborted, decompressed_bytes_max)
    if sum(len(section.payload) for section in sections) > RUN_BYTES_MAX:
        raise DecompressedTooLarge("the run unpacks to 2 GiB or more; decode fewer batches at a time")
    return record_batch(codec.parse_columns(sections, start_offset), timestamp_type)


def record_batch(columns: Columns, timestamp_type: pa.DataType | None = None) -> pa.RecordBatch:
    """Wrap the buffers of `columns`, without a copy."""
    import pyarrow as pa

    count = columns.row_count
    timestamp = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.timestamp_ms)])
    if timestamp_type is not None and timestamp_type != pa.int64():
        try:
            timestamp = timestamp.view(pa.timestamp("ms", tz="UTC")).cast(timestamp_type)
        except pa.ArrowInvalid as fault:
            raise InvalidBatch(f"a record's time does not fit into {timestamp_type}") from fault
    fields = {
        "offset": pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offset)]),
        "timestamp": timestamp,
        "key": _binary(columns.key, pa.binary(), count),
        "value": _binary(columns.value, pa.binary(), count),
        "headers": _headers(columns),
    }
    return pa.RecordBatch.from_arrays(list(fields.values()), names=list(fields))


def _headers(columns: Columns) -> pa.Array:
    import pyarrow as pa

    count = columns.header_count
    pairs = pa.StructArray.from_arrays(
        [_binary(columns.header_name, pa.string(), count), _binary(columns.header_value, pa.binary(), count)],
        names=["key", "value"],
    )
    ends: list[Any] = [None, pa.py_buffer(columns.header_ends)]
    return pa.Array.from_buffers(pa.list_(pairs.type), columns.row_count, ends, children=[pairs])


def _binary(column: BinaryColumn, type_: pa.DataType, count: int) -> pa.Array:
    import pyarrow as pa

    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(type_, count, buffers, null_count=column.null_count)
