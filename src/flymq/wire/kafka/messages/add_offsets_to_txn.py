"""AddOffsetsToTxn, versions 0 to 4. Written by tools/generate_kafka_codecs.py: do not edit."""

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 3
_QH = Struct(">qh")
_IH = Struct(">ih")


class AddOffsetsToTxnRequest(msgspec.Struct):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0


def parse_request(reader: Reader, version: int) -> AddOffsetsToTxnRequest:
    transactional_id = reader.string()
    producer_id, producer_epoch = reader.unpack(_QH)
    group_id = reader.string()
    reader.end()
    return AddOffsetsToTxnRequest(transactional_id, producer_id, producer_epoch, group_id)


def encode_response(writer: Writer, value: AddOffsetsToTxnResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    writer.end()


RESPONSE = AddOffsetsToTxnResponse
