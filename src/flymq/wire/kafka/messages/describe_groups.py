"""DescribeGroups, versions 0 to 6. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 5
_T = Struct(">?")
_H = Struct(">h")
_I = Struct(">i")


class DescribeGroupsRequest(msgspec.Struct):
    groups: list[str] = []
    include_authorized_operations: bool = False


class DescribedGroupMember(msgspec.Struct):
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(msgspec.Struct):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: int = -2147483648


class DescribeGroupsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = []


def parse_request(reader: Reader, version: int) -> DescribeGroupsRequest:
    groups = [reader.string() for _ in range(reader.count())]
    include_authorized_operations = False
    if version >= 3:
        (include_authorized_operations,) = reader.unpack(_T)
    reader.end()
    return DescribeGroupsRequest(groups, include_authorized_operations)


def _encode_described_group_member(writer: Writer, value: DescribedGroupMember, version: int) -> None:
    writer.string(value.member_id)
    if version >= 4:
        writer.nullable_string(value.group_instance_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.octets(value.member_metadata)
    writer.octets(value.member_assignment)
    writer.end()


def _encode_described_group(writer: Writer, value: DescribedGroup, version: int) -> None:
    writer += _H.pack(value.error_code)
    if version >= 6:
        writer.nullable_string(value.error_message)
    writer.string(value.group_id)
    writer.string(value.group_state)
    writer.string(value.protocol_type)
    writer.string(value.protocol_data)
    writer.amount(value.members)
    for described_group_member in value.members:
        _encode_described_group_member(writer, described_group_member, version)
    if version >= 3:
        writer += _I.pack(value.authorized_operations)
    writer.end()


def encode_response(writer: Writer, value: DescribeGroupsResponse, version: int) -> None:
    if version >= 1:
        writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.groups)
    for described_group in value.groups:
        _encode_described_group(writer, described_group, version)
    writer.end()


RESPONSE = DescribeGroupsResponse
