"""JoinGroup, versions 0 to 9. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 6
_I = Struct(">i")
_HI = Struct(">hi")
_T = Struct(">?")


class JoinGroupRequestProtocol(msgspec.Struct):
    name: str = ""
    metadata: bytes = b""


class JoinGroupRequest(msgspec.Struct):
    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: str | None = None


class JoinGroupResponseMember(msgspec.Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    metadata: bytes = b""


class JoinGroupResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


def _parse_join_group_request_protocol(reader: Reader, _version: int) -> JoinGroupRequestProtocol:
    name = reader.string()
    metadata = reader.octets()
    reader.end()
    return JoinGroupRequestProtocol(name, metadata)


def parse_request(reader: Reader, version: int) -> JoinGroupRequest:
    group_id = reader.string()
    (session_timeout_ms,) = reader.unpack(_I)
    rebalance_timeout_ms = -1
    if version >= 1:
        (rebalance_timeout_ms,) = reader.unpack(_I)
    member_id = reader.string()
    group_instance_id: str | None = None
    if version >= 5:
        group_instance_id = reader.nullable_string()
    protocol_type = reader.string()
    protocols = [_parse_join_group_request_protocol(reader, version) for _ in range(reader.count())]
    reason: str | None = None
    if version >= 8:
        reason = reader.nullable_string()
    reader.end()
    return JoinGroupRequest(
        group_id,
        session_timeout_ms,
        rebalance_timeout_ms,
        member_id,
        group_instance_id,
        protocol_type,
        protocols,
        reason,
    )


def _encode_join_group_response_member(writer: Writer, value: JoinGroupResponseMember, version: int) -> None:
    writer.string(value.member_id)
    if version >= 5:
        writer.nullable_string(value.group_instance_id)
    writer.octets(value.metadata)
    writer.end()


def encode_response(writer: Writer, value: JoinGroupResponse, version: int) -> None:
    if version >= 2:
        writer += _I.pack(value.throttle_time_ms)
    writer += _HI.pack(value.error_code, value.generation_id)
    if version >= 7:
        writer.nullable_string(value.protocol_type)
    writer.nullable_string(value.protocol_name)
    writer.string(value.leader)
    if version >= 9:
        writer += _T.pack(value.skip_assignment)
    writer.string(value.member_id)
    writer.amount(value.members)
    for join_group_response_member in value.members:
        _encode_join_group_response_member(writer, join_group_response_member, version)
    writer.end()


RESPONSE = JoinGroupResponse
