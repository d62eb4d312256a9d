"""IncrementalAlterConfigs, versions 0 to 1. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 1
_B = Struct(">b")
_T = Struct(">?")
_H = Struct(">h")
_I = Struct(">i")


class AlterableConfig(msgspec.Struct):
    name: str = ""
    config_operation: int = 0
    value: str | None = None


class AlterConfigsResource(msgspec.Struct):
    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(msgspec.Struct):
    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResourceResponse(msgspec.Struct):
    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""


class IncrementalAlterConfigsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = []


def _parse_alterable_config(reader: Reader, _version: int) -> AlterableConfig:
    name = reader.string()
    (config_operation,) = reader.unpack(_B)
    value = reader.nullable_string()
    reader.end()
    return AlterableConfig(name, config_operation, value)


def _parse_alter_configs_resource(reader: Reader, version: int) -> AlterConfigsResource:
    (resource_type,) = reader.unpack(_B)
    resource_name = reader.string()
    configs = [_parse_alterable_config(reader, version) for _ in range(reader.count())]
    reader.end()
    return AlterConfigsResource(resource_type, resource_name, configs)


def parse_request(reader: Reader, version: int) -> IncrementalAlterConfigsRequest:
    resources = [_parse_alter_configs_resource(reader, version) for _ in range(reader.count())]
    (validate_only,) = reader.unpack(_T)
    reader.end()
    return IncrementalAlterConfigsRequest(resources, validate_only)


def _encode_alter_configs_resource_response(writer: Writer, value: AlterConfigsResourceResponse, _version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.error_message)
    writer += _B.pack(value.resource_type)
    writer.string(value.resource_name)
    writer.end()


def encode_response(writer: Writer, value: IncrementalAlterConfigsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.responses)
    for alter_configs_resource_response in value.responses:
        _encode_alter_configs_resource_response(writer, alter_configs_resource_response, version)
    writer.end()


RESPONSE = IncrementalAlterConfigsResponse
