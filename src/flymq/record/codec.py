"""The record codec in use: the compiled one, or its twin in plain Python where none could be built."""

from __future__ import annotations

COMPILED: bool
"""False where no compiler was at hand at install time: all works, encoding and decoding take 30 to 60 × longer."""

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
