"""PushTelemetry, version 0. Written by tools/generate_kafka_codecs.py: do not edit."""

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 0
_16SITB = Struct(">16si?b")
_IH = Struct(">ih")


class PushTelemetryRequest(msgspec.Struct):
    client_instance_id: bytes = NO_ID
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes = b""


class PushTelemetryResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0


def parse_request(reader: Reader, version: int) -> PushTelemetryRequest:
    client_instance_id, subscription_id, terminating, compression_type = reader.unpack(_16SITB)
    metrics = reader.octets()
    reader.end()
    return PushTelemetryRequest(client_instance_id, subscription_id, terminating, compression_type, metrics)


def encode_response(writer: Writer, value: PushTelemetryResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    writer.end()


RESPONSE = PushTelemetryResponse
