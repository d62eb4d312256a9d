"""ListConfigResources, versions 0 to 1. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_B = Struct(">b")
_IH = Struct(">ih")


class ListConfigResourcesRequest(msgspec.Struct):
    resource_types: list[int] = []


class ConfigResource(msgspec.Struct):
    resource_name: str = ""
    resource_type: int = 16


class ListConfigResourcesResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ConfigResource] = []


def parse_request(reader: Reader, version: int) -> ListConfigResourcesRequest:
    resource_types: list[int] = []
    if version >= 1:
        resource_types = [reader.unpack(_B)[0] for _ in range(reader.count())]
    reader.end()
    return ListConfigResourcesRequest(resource_types)


def _encode_config_resource(writer: Writer, value: ConfigResource, version: int) -> None:
    writer.string(value.resource_name)
    if version >= 1:
        writer += _B.pack(value.resource_type)
    writer.end()


def encode_response(writer: Writer, value: ListConfigResourcesResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    writer.amount(value.config_resources)
    for config_resource in value.config_resources:
        _encode_config_resource(writer, config_resource, version)
    writer.end()


RESPONSE = ListConfigResourcesResponse
