"""The record codec in use: the compiled one, or the plain Python one where that could not be built."""

from __future__ import annotations

COMPILED: bool
"""False if no compiler was available at install time: encoding and decoding then take 30 to 60 times longer."""

try:
    from flymq.record._fast import (
        NO_OFFSET,
        Record,
        RecordLike,
        assign_batch,
        encode_columns,
        encode_kept,
        encode_records,
        hash_keys,
        murmur2,
        parse_columns,
        parse_pairs,
        parse_records,
        parse_rows,
    )

    COMPILED = True
except ImportError:
    from flymq.record._plain import (
        NO_OFFSET,
        Record,
        RecordLike,
        assign_batch,
        encode_columns,
        encode_kept,
        encode_records,
        hash_keys,
        murmur2,
        parse_columns,
        parse_pairs,
        parse_records,
        parse_rows,
    )

    COMPILED = False

__all__ = [
    "COMPILED",
    "NO_OFFSET",
    "Record",
    "RecordLike",
    "assign_batch",
    "encode_columns",
    "encode_kept",
    "encode_records",
    "hash_keys",
    "murmur2",
    "parse_columns",
    "parse_pairs",
    "parse_records",
    "parse_rows",
]
