"""Check the records of a new batch before it enters a log, so that no reader stumbles over them later.

A checksum tells that the bytes are those the sender had, not that they are records. Checked here: the number of
records, every length, the offsets 0 to n - 1, header names in UTF-8, and nothing after the last record; compressed
batches are decompressed for it. The highest timestamp is returned rather than checked: brokers of Kafka correct a wrong
one, and some clients count on that.

Batches that are copied from another log keep gaps in their offsets and are not checked here: reading them is.
"""

from __future__ import annotations

from typing import NamedTuple

from flymq.model.errors import InvalidTimestamp, KeyRequired
from flymq.record import codec
from flymq.record.compression import Compression, decompress, decompressed_bytes_bound
from flymq.record.header import HEADER_SIZE, BatchHeader, Buffer
from flymq.record.shapes import Section

_NAMED_MAX = 32


class Framing(NamedTuple):
    """What a look at every record of a batch tells."""

    max_timestamp: int
    keyless: int
    """How many records have no key."""


def check_framing(batch: Buffer, header: BatchHeader, decompressed_bytes_max: int) -> Framing:
    """Check the records of a batch whose header and checksum are right, or raise an error that names the record."""
    payload = _payload(batch, header, decompressed_bytes_max)
    return Framing(*codec.check_records(payload, header.record_count, header.base_timestamp))


def key_required(batch: Buffer, header: BatchHeader, decompressed_bytes_max: int) -> KeyRequired:
    """Return the error that names the records without a key in a batch that `check_framing` has checked."""
    payload = _payload(batch, header, decompressed_bytes_max)
    section = Section(payload, header.record_count, 0, header.last_offset_delta, header.base_timestamp, None)
    indexes = codec.keyless_records(section, _NAMED_MAX)
    named = ", ".join(map(str, indexes))
    return KeyRequired(f"records of a compacted topic need a key; without one: {named} of the batch", indexes=indexes)


def untimely(
    batch: Buffer, header: BatchHeader, earliest_ms: int, latest_ms: int, decompressed_bytes_max: int
) -> InvalidTimestamp | None:
    """Return the error that names the records with a time outside of these, in a batch that was checked."""
    payload = _payload(batch, header, decompressed_bytes_max)
    section = Section(payload, header.record_count, 0, header.last_offset_delta, header.base_timestamp, None)
    indexes = codec.untimely_records(section, earliest_ms, latest_ms, _NAMED_MAX)
    if not indexes:
        return None
    named = ", ".join(map(str, indexes))
    taken = f"up to {latest_ms} ms" if earliest_ms < 0 else f"from {earliest_ms} to {latest_ms} ms"
    return InvalidTimestamp(f"the topic takes times {taken}; others: records {named} of the batch", indexes=indexes)


def _payload(batch: Buffer, header: BatchHeader, decompressed_bytes_max: int) -> Buffer:
    packed = memoryview(batch)[HEADER_SIZE:]
    if header.compression == Compression.GZIP:  # the others declare a size in front, or are limited by their blocks
        decompressed_bytes_max = decompressed_bytes_bound(packed, Compression.GZIP, decompressed_bytes_max)
    return decompress(packed, header.compression, decompressed_bytes_max)
