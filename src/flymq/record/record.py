"""The record type of the codec in use, and the types that can be encoded as one."""

from flymq.record.codec import NO_OFFSET, Record, RecordLike
from flymq.record.shapes import Header, Pair, Row

__all__ = ["NO_OFFSET", "Header", "Pair", "Record", "RecordLike", "Row"]
