"""EndTxn, versions 0 to 5. Written by tools/generate_kafka_codecs.py: do not edit."""

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 3
_QHT = Struct(">qh?")
_IH = Struct(">ih")
_QH = Struct(">qh")


class EndTxnRequest(msgspec.Struct):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False


class EndTxnResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


def parse_request(reader: Reader, version: int) -> EndTxnRequest:
    transactional_id = reader.string()
    producer_id, producer_epoch, committed = reader.unpack(_QHT)
    reader.end()
    return EndTxnRequest(transactional_id, producer_id, producer_epoch, committed)


def encode_response(writer: Writer, value: EndTxnResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    if version >= 5:
        writer += _QH.pack(value.producer_id, value.producer_epoch)
    writer.end()


RESPONSE = EndTxnResponse
