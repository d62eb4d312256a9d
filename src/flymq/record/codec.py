"""The record codec in use: the compiled one, or its twin in plain Python where none could be built."""

from __future__ import annotations

COMPILED: bool
"""False where there was no compiler at install time: all works, but encoding is about 25 × and decoding about 45 ×
slower (a batch of 1,000 records of 100 bytes, CPython 3.11)."""

try:
    from flymq.record._fast import (
        NO_OFFSET,
        LastOffsets,
        Record,
        RecordLike,
        assign_batch,
        check_records,
        encode_columns,
        encode_kept,
        encode_records,
        find_latest_time,
        find_time,
        hash_keys,
        keyless_records,
        murmur2,
        parse_columns,
        parse_pairs,
        parse_records,
        parse_rows,
        untimely_records,
    )

    COMPILED = True
except ImportError:
    from flymq.record._plain import (
        NO_OFFSET,
        LastOffsets,
        Record,
        RecordLike,
        assign_batch,
        check_records,
        encode_columns,
        encode_kept,
        encode_records,
        find_latest_time,
        find_time,
        hash_keys,
        keyless_records,
        murmur2,
        parse_columns,
        parse_pairs,
        parse_records,
        parse_rows,
        untimely_records,
    )

    COMPILED = False

__all__ = [
    "COMPILED",
    "NO_OFFSET",
    "LastOffsets",
    "Record",
    "RecordLike",
    "assign_batch",
    "check_records",
    "encode_columns",
    "encode_kept",
    "encode_records",
    "find_latest_time",
    "find_time",
    "hash_keys",
    "keyless_records",
    "murmur2",
    "parse_columns",
    "parse_pairs",
    "parse_records",
    "parse_rows",
    "untimely_records",
]
