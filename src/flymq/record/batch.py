"""Encode records to a batch, decode a batch, and filter a batch for compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from flymq.model.delivery import TimestampType
from flymq.model.errors import EmptyBatch, InvalidBatch
from flymq.record import codec
from flymq.record.compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
from flymq.record.header import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_batch,
    parse_header,
    renew_checksum,
    set_log_append_time,
)
from flymq.record.record import Record, RecordLike
from flymq.record.shapes import RecordColumns, Section

_OFFSET_MAX = (1 << 63) - 1


def encode_batch(
    records: Iterable[RecordLike],
    *,
    timestamp_ms: int = NO_TIMESTAMP,
    timestamp_type: TimestampType = TimestampType.CREATE,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """Return a batch of `records`, which may be plain tuples (key, value[, headers[, timestamp_ms]]).

    Records without a timestamp get `timestamp_ms`; with `TimestampType.LOG_APPEND` all do. Offsets start at 0 and there
    is no leader epoch: the broker sets both with `assign`, which is why a batch is mutable.
    """
    items = records if isinstance(records, (list, tuple)) else list(records)
    if not items:
        raise EmptyBatch
    buffer, *times = codec.encode_records(items, HEADER_SIZE, timestamp_ms)
    attributes = TRANSACTIONAL_BIT if transactional else 0
    header = _new_header(len(items), attributes, times, producer_id, producer_epoch, base_sequence)
    batch = seal(buffer, header, compression)
    if timestamp_type is TimestampType.LOG_APPEND:
        set_log_append_time(batch, 0, parse_header(batch), timestamp_ms)
    return batch


def encode_column_batch(
    columns: RecordColumns,
    rows: Buffer,
    *,
    timestamp_ms: int = NO_TIMESTAMP,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """Return a batch of these rows, which are native int64, as `encode_batch` would of the same records."""
    count = len(memoryview(rows).cast("B")) // 8
    if not count:
        raise EmptyBatch
    buffer, *times = codec.encode_columns(columns, rows, HEADER_SIZE, timestamp_ms)
    attributes = TRANSACTIONAL_BIT if transactional else 0
    header = _new_header(count, attributes, times, producer_id, producer_epoch, base_sequence)
    return seal(buffer, header, compression)


def _new_header(
    count: int, attributes: int, times: Sequence[int], producer_id: int, producer_epoch: int, base_sequence: int
) -> BatchHeader:
    base_timestamp, max_timestamp = times
    return BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )


def parse_batch(
    buffer: Buffer, position: int = 0, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Return every record of the batch at `position`, those of a control batch too."""
    header = check_batch(buffer, position)
    return codec.parse_records([unpack(buffer, position, header, decompressed_bytes_max)], 0)


def retain(
    buffer: Buffer,
    position: int,
    keep: Callable[[Record], bool],
    *,
    delete_horizon_ms: int | None = None,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """Return the batch at `position` with only the records to `keep`.

    They keep their offsets and timestamps, and the header keeps everything else: a batch without records still has its
    offset range and its producer's sequence numbers. `delete_horizon_ms` is the time from which its tombstones or
    marker can be removed; an existing horizon stays unless another is given.
    """
    header = check_batch(buffer, position)
    # The append time belongs to the batch: the records' own timestamps are kept as they are.
    section = unpack(buffer, position, header, decompressed_bytes_max)._replace(append_time_ms=None)
    records = codec.parse_records([section], 0)
    kept = [record for record in records if keep(record)]
    if len(kept) == len(records) and delete_horizon_ms is None:
        return bytearray(memoryview(buffer)[position : position + header.size])
    if delete_horizon_ms is not None:
        header = with_delete_horizon(header, delete_horizon_ms)
    records_section = codec.encode_kept(kept, HEADER_SIZE, header.base_offset, header.base_timestamp)
    return seal(records_section, header._replace(record_count=len(kept)), Compression(header.compression))


def with_delete_horizon(header: BatchHeader, horizon_ms: int) -> BatchHeader:
    """Return the header with the time from which tombstones or a marker can be removed, in place of its base time."""
    return header._replace(attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon_ms)


def recompress(
    batch: Buffer,
    header: BatchHeader,
    compression: Compression,
    *,
    level: int | None = None,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """Return a checked batch with another compression, or without if that makes it larger. `header` may be changed."""
    records = decompress(memoryview(batch)[HEADER_SIZE:], header.compression, decompressed_bytes_max)
    return seal(bytearray(HEADER_SIZE) + records, header, compression, level)


def seal(buffer: bytearray, header: BatchHeader, compression: Compression, level: int | None = None) -> bytearray:
    """Compress the records in `buffer` if that makes them smaller, and write `header` into the space before them."""
    attributes = header.attributes & ~COMPRESSION_MASK
    if compression is not Compression.NONE:
        packed = compress(memoryview(buffer)[HEADER_SIZE:], compression, level)
        if HEADER_SIZE + len(packed) < len(buffer):
            buffer = bytearray(HEADER_SIZE) + packed
            attributes |= compression
    HEADER.pack_into(
        buffer,
        0,
        header.base_offset,
        len(buffer) - LENGTH_END,
        header.leader_epoch,
        MAGIC,
        0,
        attributes,
        *header[6:],  # what follows the attributes
    )
    renew_checksum(buffer, 0, len(buffer))
    return buffer


def unpack(buffer: Buffer, position: int, header: BatchHeader, decompressed_bytes_max: int) -> Section:
    """Return the records of the checked batch at `position`, decompressed."""
    if header.base_offset > _OFFSET_MAX - header.last_offset_delta:
        raise InvalidBatch("the batch's offsets do not fit into 63 bits")
    packed = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    return Section(
        payload=decompress(packed, header.compression, decompressed_bytes_max) if packed else packed,
        record_count=header.record_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        append_time_ms=header.max_timestamp if header.has_log_append_time else None,
    )
