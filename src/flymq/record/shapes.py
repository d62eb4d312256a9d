"""The data types of the record codec."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from flymq.record.header import Buffer

Header: TypeAlias = tuple[str, bytes | None]
"""A record header: name and value; names may repeat, and their order is kept."""

Pair: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value."""

Row: TypeAlias = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp in ms, key and value."""


class Section(NamedTuple):
    """The decompressed records of one batch, with the bases of their offset and timestamp deltas."""

    payload: Buffer
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_time_ms: int | None
    """The timestamp of every record if the broker sets it; None: each has its own."""


class BinaryColumn(NamedTuple):
    """Byte strings in Arrow's layout: value `i` is `data[ends[i]:ends[i + 1]]`, the ends being native int32."""

    null_count: int
    validity: Buffer | None
    """One bit per value, least significant first, 0 for null; None if no value is null."""
    ends: Buffer
    data: Buffer


class Columns(NamedTuple):
    """Records as columns in Arrow's layout: raw buffers, which any Arrow library wraps without a copy."""

    row_count: int
    offset: Buffer
    timestamp_ms: Buffer
    key: BinaryColumn
    value: BinaryColumn
    header_ends: Buffer
    """The headers of record `i` are those from `header_ends[i]` to `header_ends[i + 1]`."""
    header_count: int
    header_name: BinaryColumn
    header_value: BinaryColumn


class RecordColumns(NamedTuple):
    """Records to be written, as columns in Arrow's layout. A column that is None is absent."""

    row_count: int
    value: BinaryColumn
    key: BinaryColumn | None = None
    timestamp_ms: Buffer | None = None
    """Native int64; -1 for a record without a timestamp."""
    header_ends: Buffer | None = None
    header_count: int = 0
    header_name: BinaryColumn | None = None
    header_value: BinaryColumn | None = None
