"""The record codec in plain Python: the reference for `_fast`, and the fallback where that is not built.

Both modules have the same functions, produce the same bytes and reject the same input with the same messages.

    record = length: varint | attributes: 0 | timestamp delta: varint | offset delta: varint
           | key: nullable | value: nullable | header count: varint | headers
    header = name length: varint | name: UTF-8 | value: nullable
    nullable = length: varint, -1 for null | bytes

A varint is zigzag-encoded (0, -1, 1, -2, …) in groups of 7 bits, the lowest first; all but the last have the top bit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from struct import Struct
from typing import Any, TypeAlias

from flymq.model.errors import DecompressedTooLarge, InvalidBatch, InvalidRecord, MessageTooLarge
from flymq.record.header import NO_TIMESTAMP, BatchHeader, Buffer, check_batch, header_of
from flymq.record.shapes import BinaryColumn, Columns, Header, Pair, RecordColumns, Row, Section

NO_OFFSET = -1

_BATCH_BYTES_MAX = (1 << 31) - 1
_COLUMN_BYTES_MAX = (1 << 31) - 1  # Arrow's `binary` counts bytes in 32 bits
_RECORD_BYTES_MIN = 7  # seven fields of one byte each
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_WORD = Struct("<I")
_ASSIGNED = Struct(">qii")

_RawHeader: TypeAlias = tuple[bytes, bytes | None]
_RawRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None, list[_RawHeader]]


def assign_batch(buffer: Buffer, position: int, base_offset: int, leader_epoch: int) -> tuple[bytes, BatchHeader]:
    """Check the batch at `position`; return its header with the assigned offset and epoch, and its first 16 bytes.

    These contain all that the broker assigns and are not covered by the checksum: written in front of the rest of the
    batch, they complete it, so that the received bytes are neither copied nor changed.
    """
    header = check_batch(buffer, position)
    assigned = _ASSIGNED.pack(base_offset, header.length, leader_epoch)
    return assigned, header_of((base_offset, header.length, leader_epoch, *header[3:]))


@dataclass(frozen=True, slots=True)
class Record:
    """One message. A null value under a key is a tombstone: compaction removes the key.

    A record to be written needs neither timestamp nor offset; a record that was read has both.
    """

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp_ms: int = NO_TIMESTAMP
    offset: int = NO_OFFSET

    def __iter__(self) -> Iterator[Any]:
        return iter((self.key, self.value, self.headers, self.timestamp_ms, self.offset))


RecordLike: TypeAlias = (
    Record
    | tuple[bytes | None, bytes | None]
    | tuple[bytes | None, bytes | None, Sequence[Header]]
    | tuple[bytes | None, bytes | None, Sequence[Header], int]
)
"""What can be encoded: a record, or a plain tuple of its first fields, which is cheaper to create."""


# --- records to bytes -----------------------------------------------------------------------------------------------


def encode_records(
    records: Sequence[RecordLike], headroom: int, timestamp_ms: int = NO_TIMESTAMP
) -> tuple[bytearray, int, int]:
    """Return the records after `headroom` free bytes, the base timestamp and the highest one.

    Records without a timestamp get `timestamp_ms`. Their offsets are renumbered from 0.
    """
    writer = _Writer(headroom)
    base = max_timestamp = _checked_time(timestamp_ms)
    for delta, record in enumerate(records):
        key, value, headers, own_ms = _fields(record)
        time_ms = _checked_time(timestamp_ms if own_ms == NO_TIMESTAMP else own_ms)
        if delta == 0:
            base = max_timestamp = time_ms
        max_timestamp = max(max_timestamp, time_ms)
        writer.append(_checked_time(time_ms - base), delta, key, value, headers)
    return writer.joined(), base, max_timestamp


def encode_kept(records: Sequence[Record], headroom: int, base_offset: int, base_timestamp: int) -> bytearray:
    """Return the records after `headroom` free bytes, each with its own offset and timestamp."""
    writer = _Writer(headroom)
    for record in records:
        timestamp_delta = _checked_time(_checked_time(record.timestamp_ms) - base_timestamp)
        writer.append(timestamp_delta, record.offset - base_offset, record.key, record.value, record.headers)
    return writer.joined()


def encode_columns(
    columns: RecordColumns, rows: Buffer, headroom: int, timestamp_ms: int = NO_TIMESTAMP
) -> tuple[bytearray, int, int]:
    """Return the records of these rows after `headroom` free bytes, the base timestamp and the highest one.

    `rows` are native int64, in the order in which the records are to be written.
    """
    count = columns.row_count
    value = _values(columns.value, count)
    key = _values(columns.key, count) if columns.key is not None else [None] * count
    times = _numbers("q", columns.timestamp_ms, count) if columns.timestamp_ms is not None else [NO_TIMESTAMP] * count
    headers = _row_headers(columns)
    wanted = array("q", bytes(rows))
    if any(not 0 <= row < count for row in wanted):
        raise IndexError("a row is not in the columns")
    return encode_records([(key[row], value[row], headers[row], times[row]) for row in wanted], headroom, timestamp_ms)


def _row_headers(columns: RecordColumns) -> list[list[Header]]:
    if columns.header_ends is None or columns.header_name is None or columns.header_value is None:
        return [[] for _ in range(columns.row_count)]
    names = _values(columns.header_name, columns.header_count)
    contents = _values(columns.header_value, columns.header_count)
    if None in names:
        raise ValueError("a header has no name")
    pairs = [(_name(name or b""), content) for name, content in zip(names, contents, strict=True)]
    ends = _numbers("i", columns.header_ends, columns.row_count + 1)
    if any(not 0 <= start <= end <= len(pairs) for start, end in pairwise(ends)):
        raise ValueError("a column's ends do not fit its data")
    return [pairs[start:end] for start, end in pairwise(ends)]


def _values(column: BinaryColumn, count: int) -> list[bytes | None]:
    ends, data = _numbers("i", column.ends, count + 1), bytes(column.data)
    if column.validity is not None and len(column.validity) < (count + 7) >> 3:
        raise ValueError("a column is shorter than its rows")
    found: list[bytes | None] = []
    for row, (start, end) in enumerate(pairwise(ends)):
        if column.validity is not None and not column.validity[row >> 3] >> (row & 7) & 1:
            found.append(None)
        elif 0 <= start <= end <= len(data):
            found.append(data[start:end])
        else:
            raise ValueError("a column's ends do not fit its data")
    return found


def _numbers(typecode: str, buffer: Buffer, count: int) -> Sequence[int]:
    numbers = array(typecode)
    if len(buffer) < numbers.itemsize * count:
        raise ValueError("a column is shorter than its rows")
    numbers.frombytes(bytes(buffer)[: numbers.itemsize * count])
    return numbers


def _fields(record: RecordLike) -> tuple[bytes | None, bytes | None, Sequence[Header], int]:
    if isinstance(record, Record):
        return record.key, record.value, record.headers, record.timestamp_ms
    if isinstance(record, tuple):
        if len(record) == 2:
            return *record, (), NO_TIMESTAMP
        if len(record) == 3:
            return *record, NO_TIMESTAMP
        if len(record) == 4:
            return record
    raise TypeError("a record is a Record or a tuple (key, value[, headers[, timestamp_ms]])")


def _checked_time(time_ms: int) -> int:
    if not isinstance(time_ms, int):
        raise TypeError("a record's timestamp_ms is an int")
    if not _INT64_MIN <= time_ms <= _INT64_MAX:
        raise InvalidBatch("a record's time is out of range")
    return time_ms


class _Writer:
    """The parts of all records, joined once at the end."""

    def __init__(self, headroom: int) -> None:
        self._pieces = [bytes(headroom)]
        self._size = headroom

    def append(
        self,
        timestamp_delta: int,
        offset_delta: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
    ) -> None:
        body = [b"\0", _varint(timestamp_delta), _varint(offset_delta), *_nullable(key), *_nullable(value)]
        if not isinstance(headers, (list, tuple)):
            raise TypeError("headers are a list or tuple of (str, bytes | None) tuples")
        body.append(_varint(len(headers)))
        for header in headers:
            body += _header(header)
        size = sum(map(len, body))
        length = _varint(size)
        self._size += len(length) + size
        if self._size > _BATCH_BYTES_MAX:
            raise MessageTooLarge("a batch is smaller than 2 GiB")
        self._pieces.append(length)
        self._pieces += body

    def joined(self) -> bytearray:
        return bytearray().join(self._pieces)


def _header(header: Header) -> tuple[bytes, ...]:
    if not isinstance(header, tuple) or len(header) != 2 or not isinstance(header[0], str):
        raise TypeError("headers are a list or tuple of (str, bytes | None) tuples")
    return *_nullable(header[0].encode()), *_nullable(header[1])


def _nullable(field: bytes | None) -> tuple[bytes, bytes]:
    if field is None:
        return _varint(-1), b""
    if not isinstance(field, bytes):
        raise TypeError(f"keys and values are bytes or None, not {type(field).__name__}")
    return _varint(len(field)), field


@lru_cache(maxsize=1 << 14)
def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


# --- bytes to records -----------------------------------------------------------------------------------------------


def parse_records(sections: Iterable[Section], start_offset: int) -> list[Record]:
    """Return the records from `start_offset` on."""
    return [
        Record(key, value, tuple((_name(name), content) for name, content in headers), timestamp, offset)
        for section in sections
        for offset, timestamp, key, value, headers in _walk(section, start_offset)
    ]


def parse_pairs(sections: Iterable[Section], start_offset: int) -> list[Pair]:
    """Return (key, value) of the records from `start_offset` on."""
    return [(key, value) for section in sections for _, _, key, value, _ in _walk(section, start_offset)]


def parse_rows(sections: Iterable[Section], start_offset: int) -> list[Row]:
    """Return (offset, timestamp, key, value) of the records from `start_offset` on."""
    return [row[:4] for section in sections for row in _walk(section, start_offset)]


def parse_columns(sections: Sequence[Section], start_offset: int) -> Columns:
    """Return the records from `start_offset` on as Arrow buffers."""
    if sum(len(section.payload) for section in sections) > _COLUMN_BYTES_MAX:
        raise DecompressedTooLarge("the run unpacks to 2 GiB or more; decode fewer batches at a time")
    rows: list[_RawRecord] = []
    for section in sections:
        for row in _walk(section, start_offset):
            for name, _ in row[4]:
                _name(name)  # rejects invalid UTF-8
            rows.append(row)
    headers = [header for row in rows for header in row[4]]
    return Columns(
        row_count=len(rows),
        offset=array("q", [row[0] for row in rows]).tobytes(),
        timestamp_ms=array("q", [row[1] for row in rows]).tobytes(),
        key=_binary_column([row[2] for row in rows]),
        value=_binary_column([row[3] for row in rows]),
        header_ends=_ends([len(row[4]) for row in rows]),
        header_count=len(headers),
        header_name=_binary_column([name for name, _ in headers]),
        header_value=_binary_column([content for _, content in headers]),
    )


def find_time(section: Section, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record from `start_offset` on that is of this time or later."""
    for offset, time_ms, *_ in _walk(section, start_offset):
        if time_ms >= timestamp_ms:
            return offset, time_ms
    return None


def find_latest_time(section: Section, start_offset: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record from `start_offset` on that has the latest time of them."""
    latest: tuple[int, int] | None = None
    for offset, time_ms, *_ in _walk(section, start_offset):
        if latest is None or time_ms > latest[1]:
            latest = offset, time_ms
    return latest


def _binary_column(fields: Sequence[bytes | None]) -> BinaryColumn:
    validity = bytearray((len(fields) + 7) // 8)
    for index, field in enumerate(fields):
        if field is not None:
            validity[index >> 3] |= 1 << (index & 7)
    null_count = sum(field is None for field in fields)
    return BinaryColumn(
        null_count=null_count,
        validity=bytes(validity) if null_count else None,
        ends=_ends([len(field or b"") for field in fields]),
        data=b"".join([field for field in fields if field]),
    )


def _ends(lengths: Sequence[int]) -> bytes:
    ends = array("i", [0])
    for length in lengths:
        ends.append(ends[-1] + length)
    return ends.tobytes()


def _walk(section: Section, start_offset: int) -> Iterator[_RawRecord]:
    """Yield the records from `start_offset` on. Those before are skipped by their length, without decoding."""
    payload = bytes(section.payload)
    end = len(payload)
    if not 0 <= section.record_count <= end // _RECORD_BYTES_MIN:
        raise InvalidBatch("the batch counts more records than its bytes can hold")
    at, previous_delta = 0, -1
    for _ in range(section.record_count):
        length, at = _read_varint(payload, at, end)
        if not 0 <= length <= end - at:
            raise InvalidBatch("a record is longer than its batch")
        record_end = at + length
        if length == 0:
            raise InvalidBatch("a record ends in the middle of a field")
        timestamp_delta, at = _read_varint(payload, at + 1, record_end)
        delta, at = _read_varint(payload, at, record_end)
        if not previous_delta < delta <= section.last_offset_delta:
            raise InvalidBatch("the offsets of the batch's records do not ascend within it")
        previous_delta = delta
        offset = section.base_offset + delta
        if offset >= start_offset:
            timestamp = _timestamp(section, timestamp_delta)
            yield offset, timestamp, *_read_fields(payload, at, record_end)
        at = record_end
    if at != end:
        raise InvalidBatch("bytes are left after the last record of the batch")


def _timestamp(section: Section, delta: int) -> int:
    if section.append_time_ms is not None:
        return section.append_time_ms
    timestamp = section.base_timestamp + delta
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise InvalidBatch("a record's time is out of range")
    return timestamp


def _read_fields(payload: bytes, at: int, end: int) -> tuple[bytes | None, bytes | None, list[_RawHeader]]:
    key, at = _read_nullable(payload, at, end)
    value, at = _read_nullable(payload, at, end)
    count, at = _read_varint(payload, at, end)
    if not 0 <= count <= (end - at) // 2:
        raise InvalidBatch("a record counts more headers than its bytes can hold")
    headers: list[_RawHeader] = []
    for _ in range(count):
        name, at = _read_nullable(payload, at, end)
        if name is None:
            raise InvalidBatch("a header has no name")
        content, at = _read_nullable(payload, at, end)
        headers.append((name, content))
    if at != end:
        raise InvalidBatch("bytes are left after the last field of a record")
    return key, value, headers


def _read_nullable(payload: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(payload, at, end)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise InvalidBatch("a field is longer than its record")
    return payload[at : at + length], at + length


def _read_varint(payload: bytes, at: int, end: int) -> tuple[int, int]:
    if at < end and (byte := payload[at]) < 0x80:  # nearly always
        return (byte >> 1) ^ -(byte & 1), at + 1
    number = shift = 0
    while at < end:
        byte = payload[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if shift == 63 and byte > 1:
            raise InvalidBatch("a number of a record has more than 64 bits")
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise InvalidBatch("a record ends in the middle of a field")


def _name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as fault:
        raise InvalidBatch("the name of a header is not UTF-8") from fault


# --- check ----------------------------------------------------------------------------------------------------------


def check_records(payload: Buffer, record_count: int, base_timestamp: int) -> tuple[int, int]:
    """Check the records of a new batch; return the highest timestamp and the number of records without a key.

    Stricter than parsing: offsets have no gaps, and all numbers but times have 32 bits, as readers in Java demand.
    """
    data = bytes(payload)
    at, end = 0, len(data)
    if not 0 <= record_count <= end // _RECORD_BYTES_MIN:
        raise InvalidBatch("the batch counts more records than its bytes can hold")
    max_timestamp, keyless = _INT64_MIN, 0
    for index in range(record_count):
        try:
            length, at = _read_int(data, at, end)
            if not 0 <= length <= end - at:
                raise InvalidBatch("a record is longer than its batch")
            timestamp, key_size = _check_record(data, at, at + length, index, base_timestamp)
        except InvalidBatch as fault:
            raise InvalidRecord(f"record {index}: {fault.message}", indexes=[index]) from None
        max_timestamp = max(max_timestamp, timestamp)
        keyless += key_size < 0
        at += length
    if at != end:
        raise InvalidBatch("bytes are left after the last record of the batch")
    return max_timestamp, keyless


def keyless_records(section: Section, limit: int) -> list[int]:
    """Return the positions of the first records without a key."""
    return list(islice((index for index, row in enumerate(_walk(section, 0)) if row[2] is None), limit))


def untimely_records(section: Section, earliest_ms: int, latest_ms: int, limit: int) -> list[int]:
    """Return the positions of the first records whose time lies outside of these; -1, no time, does not."""
    times = enumerate(row[1] for row in _walk(section, 0))
    return list(islice((index for index, time in times if time != -1 and not earliest_ms <= time <= latest_ms), limit))


def _check_record(data: bytes, at: int, end: int, index: int, base_timestamp: int) -> tuple[int, int]:
    """Return the timestamp of one record and the size of its key."""
    if at == end:
        raise InvalidBatch("a record ends in the middle of a field")
    timestamp_delta, at = _read_varint(data, at + 1, end)
    timestamp = base_timestamp + timestamp_delta
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise InvalidBatch("a record's time is out of range")
    offset_delta, at = _read_int(data, at, end)
    if offset_delta != index:
        raise InvalidBatch("the offsets of a new batch's records are not 0, 1, 2 and so on")
    key_size, at = _skip_nullable(data, at, end)
    _, at = _skip_nullable(data, at, end)
    _check_headers(data, at, end)
    return timestamp, key_size


def _check_headers(data: bytes, at: int, end: int) -> None:
    count, at = _read_int(data, at, end)
    if not 0 <= count <= (end - at) // 2:
        raise InvalidBatch("a record counts more headers than its bytes can hold")
    for _ in range(count):
        size, at = _skip_nullable(data, at, end)
        if size < 0:
            raise InvalidBatch("a header has no name")
        _name(data[at - size : at])  # rejects invalid UTF-8
        _, at = _skip_nullable(data, at, end)
    if at != end:
        raise InvalidBatch("bytes are left after the last field of a record")


def _skip_nullable(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the size of a field, -1 for null, and the position after it."""
    size, at = _read_int(data, at, end)
    if size == -1:
        return -1, at
    if not 0 <= size <= end - at:
        raise InvalidBatch("a field is longer than its record")
    return size, at + size


def _read_int(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a varint of 32 bits. Readers of ours take longer ones too, those in Java do not."""
    number = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if shift == 28 and byte > 0x0F:
            raise InvalidBatch("a number of a record has more than 32 bits")
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise InvalidBatch("a record ends in the middle of a field")


# --- compaction -----------------------------------------------------------------------------------------------------


class LastOffsets:
    """The last offset of each key."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, section: Section) -> None:
        """Note the keys of all records; of an invalid batch, none."""
        for offset, _, key, _, _ in list(_walk(section, 0)):
            if key is not None:
                self._offsets[key] = max(offset, self._offsets.get(key, offset))

    def count_kept(self, section: Section, drop_tombstones: bool) -> tuple[int, int]:
        """Return how many records are the last of their key, or have none; and how many of these are tombstones."""
        kept = [record for record in _walk(section, 0) if self._keeps(record, drop_tombstones)]
        return len(kept), sum(key is not None and value is None for _, _, key, value, _ in kept)

    def retain(self, section: Section, drop_tombstones: bool, headroom: int, base_timestamp: int) -> bytearray:
        """Return these records after `headroom` free bytes, with their timestamps relative to `base_timestamp`."""
        out = bytearray(headroom)
        payload, begin = bytes(section.payload), 0
        for record in _walk(section, 0):
            length, at = _read_varint(payload, begin, len(payload))
            end = at + length
            if self._keeps(record, drop_tombstones):
                if base_timestamp == section.base_timestamp:
                    out += payload[begin:end]
                else:
                    _, rest = _read_varint(payload, at + 1, end)
                    body = payload[at : at + 1] + _varint(_checked_time(record[1] - base_timestamp)) + payload[rest:end]
                    out += _varint(len(body)) + body
            begin = end
        return out

    def _keeps(self, record: _RawRecord, drop_tombstones: bool) -> bool:
        offset, _, key, value, _ = record
        if key is None:
            return True
        return not (drop_tombstones and value is None) and self._offsets.get(key, NO_OFFSET) <= offset


# --- keys to partitions ---------------------------------------------------------------------------------------------


def murmur2(key: Buffer) -> int:
    """Return the 32-bit MurmurHash2 with the seed of Kafka's clients."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    data = bytes(key)
    tail = len(data) & 3
    value = 0x9747B28C ^ len(data)
    for (word,) in _WORD.iter_unpack(data[: len(data) - tail]):
        word = word * m & mask
        value = (value * m ^ (word ^ word >> 24) * m) & mask
    if tail:
        value = (value ^ int.from_bytes(data[-tail:], "little")) * m & mask
    value = (value ^ value >> 13) * m & mask
    return value ^ value >> 15


def hash_keys(column: BinaryColumn, count: int) -> bytearray:
    """Return the non-negative hash of each key, as native int32; -1 for no key.

    The hash modulo the number of partitions is the key's partition.
    """
    hashes = [-1 if key is None else murmur2(key) & 0x7FFFFFFF for key in _values(column, count)]
    return bytearray(array("i", hashes).tobytes())
