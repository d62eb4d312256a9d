"""SyncGroup, versions 0 to 5. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 4
_I = Struct(">i")
_H = Struct(">h")


class SyncGroupRequestAssignment(msgspec.Struct):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupRequest(msgspec.Struct):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


def _parse_sync_group_request_assignment(reader: Reader, _version: int) -> SyncGroupRequestAssignment:
    member_id = reader.string()
    assignment = reader.octets()
    reader.end()
    return SyncGroupRequestAssignment(member_id, assignment)


def parse_request(reader: Reader, version: int) -> SyncGroupRequest:
    group_id = reader.string()
    (generation_id,) = reader.unpack(_I)
    member_id = reader.string()
    group_instance_id: str | None = None
    if version >= 3:
        group_instance_id = reader.nullable_string()
    protocol_type: str | None = None
    if version >= 5:
        protocol_type = reader.nullable_string()
    protocol_name: str | None = None
    if version >= 5:
        protocol_name = reader.nullable_string()
    assignments = [_parse_sync_group_request_assignment(reader, version) for _ in range(reader.count())]
    reader.end()
    return SyncGroupRequest(
        group_id, generation_id, member_id, group_instance_id, protocol_type, protocol_name, assignments
    )


def encode_response(writer: Writer, value: SyncGroupResponse, version: int) -> None:
    if version >= 1:
        writer += _I.pack(value.throttle_time_ms)
    writer += _H.pack(value.error_code)
    if version >= 5:
        writer.nullable_string(value.protocol_type)
    if version >= 5:
        writer.nullable_string(value.protocol_name)
    writer.octets(value.assignment)
    writer.end()


RESPONSE = SyncGroupResponse
