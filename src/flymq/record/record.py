"""One message as a log holds it: the record type of the codec in use, and what may stand for one."""

from flymq.record.codec import NO_OFFSET, Record, RecordLike
from flymq.record.shapes import Header, Pair, Row

__all__ = ["NO_OFFSET", "Header", "Pair", "Record", "RecordLike", "Row"]
