"""Find a record by its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from flymq.model.errors import InvalidBatch
from flymq.record.batch import parse_batch
from flymq.record.header import BatchHeader
from flymq.storage.segments.segment import Segment

Touch = Callable[[Segment], None]
"""Called before the files of a segment are read."""


class TimedOffset(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


def times_of(header: BatchHeader, batch: bytes, start_offset: int) -> list[TimedOffset]:
    """Return the records of a batch from `start_offset` on; none of a control batch, which consumers do not see."""
    if header.is_control or header.last_offset < start_offset:
        return []
    try:
        records = parse_batch(batch)
    except InvalidBatch:
        # The checksum is right, so a client wrote it like this. The header alone still has offset and time.
        return [TimedOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)]
    return [
        TimedOffset(record.offset, record.timestamp_ms, header.leader_epoch)
        for record in records
        if record.offset >= start_offset
    ]


def find_time(segments: Sequence[Segment], timestamp: int, start_offset: int, touch: Touch) -> TimedOffset | None:
    """Return the first record from `start_offset` on that is of this time or later."""
    for segment in segments:
        if found := next(_records_since(segment, timestamp, start_offset, touch), None):
            return found
    return None


def find_latest_time(segments: Sequence[Segment], start_offset: int, touch: Touch) -> TimedOffset | None:
    """Return the first record from `start_offset` on that has the latest time of all."""
    latest: TimedOffset | None = None
    for segment in reversed(segments):
        if latest is not None and segment.max_timestamp < latest.timestamp:
            continue
        # Deleting or compacting may have removed the one record of the segment's latest time.
        found = next(_records_since(segment, segment.max_timestamp, start_offset, touch), None) or max(
            _records_since(segment, 0, start_offset, touch), key=lambda record: record.timestamp, default=None
        )
        if found is not None and (latest is None or found.timestamp >= latest.timestamp):
            latest = found
    return latest


def _records_since(segment: Segment, timestamp: int, start_offset: int, touch: Touch) -> Iterator[TimedOffset]:
    """Yield the records of a segment that are of this time or later."""
    if segment.next_offset <= start_offset or segment.max_timestamp < max(timestamp, 0):
        return
    touch(segment)
    for header, batch in segment.find_since(timestamp):
        for record in times_of(header, batch, start_offset):
            if record.timestamp >= timestamp:
                yield record
