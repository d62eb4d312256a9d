"""Produce versions 0 to 2, with the old message formats 0 and 1. They are always rejected.

Old versions of librdkafka compress nothing unless the broker supports Produce from version 0 on. So these versions are
advertised, and a client that really uses them gets an error instead of a closed connection.

    request    acks i16 | timeout i32 | [topic string, [partition i32, messages: bytes]]
    response   [topic string, [partition i32, error i16, offset i64, from 2: append time i64]] | from 1: throttle ms i32
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812

from flymq.model.errors import InvalidRequest
from flymq.wire.kafka.apis import Versions
from flymq.wire.kafka.framing import RESPONSE_HEAD_SIZE, RequestHead, seal_response
from flymq.wire.kafka.values import Reader, Writer

OLD_PRODUCE = Versions(0, 2)

_ACKS_AND_TIMEOUT = Struct(">hi")
_I32 = Struct(">i")
_FAILED = (Struct(">ihq"), Struct(">ihq"), Struct(">ihqq"))


def refuse_old_produce(request: memoryview, head: RequestHead, error_code: int) -> bytearray | None:
    """Return the response with this error for every partition; None if the client expects no response."""
    reader, writer = Reader(request, head.size), Writer(RESPONSE_HEAD_SIZE)
    form = _FAILED[head.version]
    nothing = (-1,) * (form.format.count("q"))
    try:
        acks, _ = reader.unpack(_ACKS_AND_TIMEOUT)
        topics = range(reader.count())
        writer.amount(topics)
        for _ in topics:
            writer.string(reader.string())
            partitions = range(reader.count())
            writer.amount(partitions)
            for _ in partitions:
                (partition,) = reader.unpack(_I32)
                reader.records()
                writer += form.pack(partition, error_code, *nothing)
    except (StructError, UnicodeDecodeError):
        raise InvalidRequest(f"PRODUCE version {head.version}: the request cannot be read") from None
    if head.version >= 1:
        writer += _I32.pack(0)
    seal_response(writer, head.correlation_id)
    return writer if acks else None
