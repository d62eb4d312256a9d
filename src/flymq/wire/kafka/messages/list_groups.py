"""ListGroups, versions 0 to 5. Written by tools/generate_kafka_codecs.py: do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 3
_I = Struct(">i")
_H = Struct(">h")


@dataclass(slots=True)
class ListGroupsRequest:
    states_filter: list[str] = field(default_factory=list)
    types_filter: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ListedGroup:
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


@dataclass(slots=True)
class ListGroupsResponse:
    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListedGroup] = field(default_factory=list)


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
