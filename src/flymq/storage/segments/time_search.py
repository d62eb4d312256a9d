"""Find a record by its time."""

from __future__ import annotations

from typing import NamedTuple

from flymq.model.errors import InvalidBatch
from flymq.record.batch import parse_batch
from flymq.record.header import BatchHeader


class TimedOffset(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


def times_of(header: BatchHeader, batch: bytes, start_offset: int) -> list[TimedOffset]:
    """Return the records of a batch from `start_offset` on; none of a control batch, which nobody reads."""
    if header.is_control or header.last_offset < start_offset:
        return []
    try:
        records = parse_batch(batch)
    except InvalidBatch:
        # Right by its checksum, so some client wrote it so. The header alone still says where and when.
        return [TimedOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)]
    return [
        TimedOffset(record.offset, record.timestamp_ms, header.leader_epoch)
        for record in records
        if record.offset >= start_offset
    ]
