"""Read and patch the 61 bytes in front of a record batch, without touching its records.

    offset size field
       0    8   base offset            set by the broker at append
       8    4   length                 bytes after this field
      12    4   leader epoch           set by the broker at append
      16    1   magic                  2
      17    4   CRC32C                 of everything from `attributes` to the end
      21    2   attributes             see below
      23    4   last offset delta
      27    8   base timestamp         ms; the delete horizon when attribute bit 6 is set
      35    8   max timestamp          ms
      43    8   producer id            -1: none
      51    2   producer epoch         -1: none
      53    4   base sequence          -1: none
      57    4   record count
      61        records, compressed as one block when the attributes say so

Attributes: bits 0-2 compression, bit 3 timestamp set by the broker, bit 4 transactional, bit 5 control batch, bit 6
delete horizon. The base offset and the leader epoch are not covered by the checksum, so the broker sets them in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from flymq.model.errors import CorruptBatch, InvalidBatch, UnsupportedBatchVersion
from flymq.record.checksum import crc32c

Buffer = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 61

LENGTH_END = 12  # the length field counts the bytes after it
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
PRODUCER_ID_AT = 43  # then the producer epoch and the base sequence
MAGIC = 2

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_CRC = Struct(">I")
_SEQUENCE_SPAN = 1 << 31


class BatchHeader(NamedTuple):
    """The header's fields, in the order of their bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, including the header."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_SPAN

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which this batch's tombstones and markers can be removed; set by compaction."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


def header_of(fields: tuple[int, ...]) -> BatchHeader:
    """Return the header with these fields, as many as it has. On the hot path: half the cost of `_make`."""
    return tuple.__new__(BatchHeader, fields)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`. Checks that it can be one; `check_batch` checks the checksum too."""
    if len(buffer) - position < HEADER_SIZE:
        raise _too_short(buffer, position)
    header = header_of(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise _wrong_magic(header.magic)
    if header.length < HEADER_SIZE - LENGTH_END:
        raise InvalidBatch(f"the batch length {header.length} is too small for a header")
    if header.last_offset_delta < 0 or header.record_count < 0 or header.base_offset < 0:
        raise InvalidBatch("the base offset, last offset delta or record count of the batch is negative")
    return header


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of the complete, valid batch at `position`, or raise an error."""
    header = parse_header(buffer, position)
    check_checksum(buffer, position, header)
    return header


def check_checksum(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise an error if the batch with this header is truncated or its checksum does not match."""
    end = position + header.length + LENGTH_END
    if end > len(buffer):
        raise InvalidBatch(f"the batch has {header.size} bytes, but only {len(buffer) - position} are present")
    actual = crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end])
    if actual != header.crc:
        raise CorruptBatch(f"checksum mismatch: stored {header.crc:#010x}, computed {actual:#010x}")


def split_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each complete batch in a run; a truncated last batch is skipped."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_SIZE:
        header = parse_header(buffer, position)
        if position + header.size > end:
            return
        yield position, header
        position += header.size


def assign(buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Set the base offset and the leader epoch. Neither is covered by the checksum."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + LENGTH_END, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int) -> None:
    """Set the broker's time as the timestamp of all records, and update the checksum."""
    Struct(">h").pack_into(buffer, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    _OFFSET.pack_into(buffer, position + 35, now_ms)
    renew_checksum(buffer, position, header.size)


def renew_checksum(buffer: bytearray | memoryview, position: int, size: int) -> None:
    """Make the checksum right again after a change under it."""
    covered = memoryview(buffer)[position + ATTRIBUTES_AT : position + size]
    _CRC.pack_into(buffer, position + CRC_AT, crc32c(covered))


def _too_short(buffer: Buffer, position: int) -> InvalidBatch:
    available = len(buffer) - position
    if available > MAGIC_AT and buffer[position + MAGIC_AT] in (0, 1):
        return _wrong_magic(buffer[position + MAGIC_AT])
    return InvalidBatch(f"a batch has at least {HEADER_SIZE} bytes, {available} are there")


def _wrong_magic(magic: int) -> InvalidBatch:
    if magic in (0, 1):
        return UnsupportedBatchVersion(f"a message set of magic {magic}; only record batches of magic 2 are accepted")
    return InvalidBatch(f"not a record batch: magic {magic}")
