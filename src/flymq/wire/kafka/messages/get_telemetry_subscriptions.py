"""GetTelemetrySubscriptions, version 0. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import NO_ID, Reader, Writer

COMPACT_FROM = 0
_16S = Struct(">16s")
_IH16SI = Struct(">ih16si")
_B = Struct(">b")
_IIT = Struct(">ii?")


class GetTelemetrySubscriptionsRequest(msgspec.Struct):
    client_instance_id: bytes = NO_ID


class GetTelemetrySubscriptionsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: bytes = NO_ID
    subscription_id: int = 0
    accepted_compression_types: list[int] = []
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []


def parse_request(reader: Reader, version: int) -> GetTelemetrySubscriptionsRequest:
    (client_instance_id,) = reader.unpack(_16S)
    reader.end()
    return GetTelemetrySubscriptionsRequest(client_instance_id)


def encode_response(writer: Writer, value: GetTelemetrySubscriptionsResponse, version: int) -> None:
    writer += _IH16SI.pack(value.throttle_time_ms, value.error_code, value.client_instance_id, value.subscription_id)
    writer.amount(value.accepted_compression_types)
    for one_int8 in value.accepted_compression_types:
        writer += _B.pack(one_int8)
    writer += _IIT.pack(value.push_interval_ms, value.telemetry_max_bytes, value.delta_temporality)
    writer.amount(value.requested_metrics)
    for one_string in value.requested_metrics:
        writer.string(one_string)
    writer.end()


RESPONSE = GetTelemetrySubscriptionsResponse
