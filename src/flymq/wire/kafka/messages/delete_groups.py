"""DeleteGroups, versions 0 to 2. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 2
_H = Struct(">h")
_I = Struct(">i")


class DeleteGroupsRequest(msgspec.Struct):
    groups_names: list[str] = []


class DeletableGroupResult(msgspec.Struct):
    group_id: str = ""
    error_code: int = 0


class DeleteGroupsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    results: list[DeletableGroupResult] = []


def parse_request(reader: Reader, version: int) -> DeleteGroupsRequest:
    groups_names = [reader.string() for _ in range(reader.count())]
    reader.end()
    return DeleteGroupsRequest(groups_names)


def _encode_deletable_group_result(writer: Writer, value: DeletableGroupResult, _version: int) -> None:
    writer.string(value.group_id)
    writer += _H.pack(value.error_code)
    writer.end()


def encode_response(writer: Writer, value: DeleteGroupsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.results)
    for deletable_group_result in value.results:
        _encode_deletable_group_result(writer, deletable_group_result, version)
    writer.end()


RESPONSE = DeleteGroupsResponse
