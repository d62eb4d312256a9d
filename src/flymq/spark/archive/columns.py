"""The columns of an archive's files, and the conversion of record batches to them.

| column | type | |
|---|---|---|
| offset | int64 | |
| timestamp | timestamp[ms, UTC] | |
| timestamp_type | int8 | 0: set by the producer, 1: by the broker |
| leader_epoch | int32 | of the record's batch |
| key, value | binary | may be null |
| headers | list of struct of key: string and value: binary | |
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flymq.record.arrow import parse_columns
from flymq.record.arrow import schema as record_schema
from flymq.record.header import Buffer, split_batches
from flymq.record.reading import Aborted

TIMESTAMP = pa.timestamp("ms", tz="UTC")
_RECORD = record_schema(TIMESTAMP)

SCHEMA = pa.schema(
    [
        _RECORD.field("offset"),
        _RECORD.field("timestamp"),
        ("timestamp_type", pa.int8()),
        ("leader_epoch", pa.int32()),
        _RECORD.field("key"),
        _RECORD.field("value"),
        _RECORD.field("headers"),
    ]
)


def archive_columns(run: Buffer, start_offset: int, end_offset: int, aborted: Sequence[Aborted] = ()) -> pa.RecordBatch:
    """Return the records of `run` from `start_offset` to before `end_offset`, without those of aborted transactions."""
    records = parse_columns(run, start_offset=start_offset, aborted=aborted, timestamp_type=TIMESTAMP)
    offsets = records.column("offset").to_numpy()
    if len(offsets) and offsets[-1] >= end_offset:
        count = int(np.searchsorted(offsets, end_offset))
        records, offsets = records.slice(0, count), offsets[:count]
    timestamp_types, leader_epochs = _of_batches(run, offsets)
    return pa.RecordBatch.from_arrays(
        [
            records.column("offset"),
            records.column("timestamp"),
            pa.array(timestamp_types, pa.int8()),
            pa.array(leader_epochs, pa.int32()),
            records.column("key"),
            records.column("value"),
            records.column("headers"),
        ],
        schema=SCHEMA,
    )


def _of_batches(run: Buffer, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns that come from each record's batch: timestamp type and leader epoch."""
    headers = [header for _, header in split_batches(run)]
    first_offsets = np.array([header.base_offset for header in headers], np.int64)
    timestamp_types = np.array([header.has_log_append_time for header in headers], np.int8)
    leader_epochs = np.array([header.leader_epoch for header in headers], np.int32)
    batch_of_record = np.searchsorted(first_offsets, offsets, side="right") - 1
    return timestamp_types[batch_of_record], leader_epochs[batch_of_record]
