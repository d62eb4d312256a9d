"""ListGroups, versions 0 to 5. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 3
_I = Struct(">i")
_H = Struct(">h")


class ListGroupsRequest(msgspec.Struct):
    states_filter: list[str] = []
    types_filter: list[str] = []


class ListedGroup(msgspec.Struct):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListedGroup] = []


def parse_request(reader: Reader, version: int) -> ListGroupsRequest:
    states_filter: list[str] = []
    if version >= 4:
        states_filter = [reader.string() for _ in range(reader.count())]
    types_filter: list[str] = []
    if version >= 5:
        types_filter = [reader.string() for _ in range(reader.count())]
    reader.end()
    return ListGroupsRequest(states_filter, types_filter)


def _encode_listed_group(writer: Writer, value: ListedGroup, version: int) -> None:
    writer.string(value.group_id)
    writer.string(value.protocol_type)
    if version >= 4:
        writer.string(value.group_state)
    if version >= 5:
        writer.string(value.group_type)
    writer.end()


def encode_response(writer: Writer, value: ListGroupsResponse, version: int) -> None:
    if version >= 1:
        writer += _I.pack(value.throttle_time_ms)
    writer += _H.pack(value.error_code)
    writer.amount(value.groups)
    for listed_group in value.groups:
        _encode_listed_group(writer, listed_group, version)
    writer.end()


RESPONSE = ListGroupsResponse
