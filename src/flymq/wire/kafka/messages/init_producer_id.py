"""InitProducerId, versions 0 to 5. Written by tools/generate_kafka_codecs.py: do not edit."""

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 2
_I = Struct(">i")
_QH = Struct(">qh")
_IHQH = Struct(">ihqh")


class InitProducerIdRequest(msgspec.Struct):
    transactional_id: str | None = None
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


class InitProducerIdResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0


def parse_request(reader: Reader, version: int) -> InitProducerIdRequest:
    transactional_id = reader.nullable_string()
    (transaction_timeout_ms,) = reader.unpack(_I)
    producer_id = -1
    producer_epoch = -1
    if version >= 3:
        producer_id, producer_epoch = reader.unpack(_QH)
    reader.end()
    return InitProducerIdRequest(transactional_id, transaction_timeout_ms, producer_id, producer_epoch)


def encode_response(writer: Writer, value: InitProducerIdResponse, version: int) -> None:
    writer += _IHQH.pack(value.throttle_time_ms, value.error_code, value.producer_id, value.producer_epoch)
    writer.end()


RESPONSE = InitProducerIdResponse
