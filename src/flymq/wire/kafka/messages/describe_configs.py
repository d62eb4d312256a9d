"""DescribeConfigs, versions 1 to 4. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 4
_B = Struct(">b")
_T = Struct(">?")
_TBT = Struct(">?b?")
_H = Struct(">h")
_I = Struct(">i")


class DescribeConfigsResource(msgspec.Struct):
    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = None


class DescribeConfigsRequest(msgspec.Struct):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: bool = False


class DescribeConfigsSynonym(msgspec.Struct):
    name: str = ""
    value: str | None = None
    source: int = 0


class DescribeConfigsResourceResult(msgspec.Struct):
    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: int = 0
    documentation: str | None = None


class DescribeConfigsResult(msgspec.Struct):
    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    results: list[DescribeConfigsResult] = []


def _parse_describe_configs_resource(reader: Reader, _version: int) -> DescribeConfigsResource:
    (resource_type,) = reader.unpack(_B)
    resource_name = reader.string()
    configuration_keys = None if (amount := reader.nullable_count()) < 0 else [reader.string() for _ in range(amount)]
    reader.end()
    return DescribeConfigsResource(resource_type, resource_name, configuration_keys)


def parse_request(reader: Reader, version: int) -> DescribeConfigsRequest:
    resources = [_parse_describe_configs_resource(reader, version) for _ in range(reader.count())]
    (include_synonyms,) = reader.unpack(_T)
    include_documentation = False
    if version >= 3:
        (include_documentation,) = reader.unpack(_T)
    reader.end()
    return DescribeConfigsRequest(resources, include_synonyms, include_documentation)


def _encode_describe_configs_synonym(writer: Writer, value: DescribeConfigsSynonym, _version: int) -> None:
    writer.string(value.name)
    writer.nullable_string(value.value)
    writer += _B.pack(value.source)
    writer.end()


def _encode_describe_configs_resource_result(
    writer: Writer, value: DescribeConfigsResourceResult, version: int
) -> None:
    writer.string(value.name)
    writer.nullable_string(value.value)
    writer += _TBT.pack(value.read_only, value.config_source, value.is_sensitive)
    writer.amount(value.synonyms)
    for describe_configs_synonym in value.synonyms:
        _encode_describe_configs_synonym(writer, describe_configs_synonym, version)
    if version >= 3:
        writer += _B.pack(value.config_type)
    if version >= 3:
        writer.nullable_string(value.documentation)
    writer.end()


def _encode_describe_configs_result(writer: Writer, value: DescribeConfigsResult, version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.error_message)
    writer += _B.pack(value.resource_type)
    writer.string(value.resource_name)
    writer.amount(value.configs)
    for describe_configs_resource_result in value.configs:
        _encode_describe_configs_resource_result(writer, describe_configs_resource_result, version)
    writer.end()


def encode_response(writer: Writer, value: DescribeConfigsResponse, version: int) -> None:
    writer += _I.pack(value.throttle_time_ms)
    writer.amount(value.results)
    for describe_configs_result in value.results:
        _encode_describe_configs_result(writer, describe_configs_result, version)
    writer.end()


RESPONSE = DescribeConfigsResponse
