"""Heartbeat, versions 0 to 4. Written by tools/generate_kafka_codecs.py: do not edit."""

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 4
_I = Struct(">i")
_H = Struct(">h")


class HeartbeatRequest(msgspec.Struct):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None


class HeartbeatResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0


def parse_request(reader: Reader, version: int) -> HeartbeatRequest:
    group_id = reader.string()
    (generation_id,) = reader.unpack(_I)
    member_id = reader.string()
    group_instance_id: str | None = None
    if version >= 3:
        group_instance_id = reader.nullable_string()
    reader.end()
    return HeartbeatRequest(group_id, generation_id, member_id, group_instance_id)


def encode_response(writer: Writer, value: HeartbeatResponse, version: int) -> None:
    if version >= 1:
        writer += _I.pack(value.throttle_time_ms)
    writer += _H.pack(value.error_code)
    writer.end()


RESPONSE = HeartbeatResponse
