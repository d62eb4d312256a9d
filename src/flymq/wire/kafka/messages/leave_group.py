"""LeaveGroup, versions 0 to 5. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 4
_H = Struct(">h")
_I = Struct(">i")


class MemberIdentity(msgspec.Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(msgspec.Struct):
    group_id: str = ""
    member_id: str = ""
    members: list[MemberIdentity] = []


class MemberResponse(msgspec.Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    error_code: int = 0


class LeaveGroupResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[MemberResponse] = []


def _parse_member_identity(reader: Reader, version: int) -> MemberIdentity:
    member_id = reader.string()
    group_instance_id = reader.nullable_string()
    reason: str | None = None
    if version >= 5:
        reason = reader.nullable_string()
    reader.end()
    return MemberIdentity(member_id, group_instance_id, reason)


def parse_request(reader: Reader, version: int) -> LeaveGroupRequest:
    group_id = reader.string()
    member_id = ""
    if version <= 2:
        member_id = reader.string()
    members: list[MemberIdentity] = []
    if version >= 3:
        members = [_parse_member_identity(reader, version) for _ in range(reader.count())]
    reader.end()
    return LeaveGroupRequest(group_id, member_id, members)


def _encode_member_response(writer: Writer, value: MemberResponse, _version: int) -> None:
    writer.string(value.member_id)
    writer.nullable_string(value.group_instance_id)
    writer += _H.pack(value.error_code)
    writer.end()


def encode_response(writer: Writer, value: LeaveGroupResponse, version: int) -> None:
    if version >= 1:
        writer += _I.pack(value.throttle_time_ms)
    writer += _H.pack(value.error_code)
    if version >= 3:
        writer.amount(value.members)
        for member_response in value.members:
            _encode_member_response(writer, member_response, version)
    writer.end()


RESPONSE = LeaveGroupResponse
