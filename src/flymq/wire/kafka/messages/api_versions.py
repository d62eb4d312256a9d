"""ApiVersions, versions 0 to 4. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 3
_HH = Struct(">hh")
_HHH = Struct(">hhh")
_H = Struct(">h")
_I = Struct(">i")
_Q = Struct(">q")
_T = Struct(">?")


class ApiVersionsRequest(msgspec.Struct):
    client_software_name: str = ""
    client_software_version: str = ""


class SupportedFeatureKey(msgspec.Struct):
    name: str = ""
    min_version: int = 0
    max_version: int = 0


class FinalizedFeatureKey(msgspec.Struct):
    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0


class ApiVersion(msgspec.Struct):
    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


class ApiVersionsResponse(msgspec.Struct):
    error_code: int = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: int = 0
    supported_features: list[SupportedFeatureKey] = []
    finalized_features_epoch: int = -1
    finalized_features: list[FinalizedFeatureKey] = []
    zk_migration_ready: bool = False


def parse_request(reader: Reader, version: int) -> ApiVersionsRequest:
    client_software_name = ""
    if version >= 3:
        client_software_name = reader.string()
    client_software_version = ""
    if version >= 3:
        client_software_version = reader.string()
    reader.end()
    return ApiVersionsRequest(client_software_name, client_software_version)


def _encode_supported_feature_key(writer: Writer, value: SupportedFeatureKey, _version: int) -> None:
    writer.string(value.name)
    writer += _HH.pack(value.min_version, value.max_version)
    writer.end()


def _encode_finalized_feature_key(writer: Writer, value: FinalizedFeatureKey, _version: int) -> None:
    writer.string(value.name)
    writer += _HH.pack(value.max_version_level, value.min_version_level)
    writer.end()


def _encode_api_version(writer: Writer, value: ApiVersion, _version: int) -> None:
    writer += _HHH.pack(value.api_key, value.min_version, value.max_version)
    writer.end()


def encode_response(writer: Writer, value: ApiVersionsResponse, version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.amount(value.api_keys)
    for api_version in value.api_keys:
        _encode_api_version(writer, api_version, version)
    if version >= 1:
        writer += _I.pack(value.throttle_time_ms)
    tagged: dict[int, Writer] = {}
    if value.supported_features and version >= 3:
        inner = tagged[0] = writer.inner()
        inner.amount(value.supported_features)
        for supported_feature_key in value.supported_features:
            _encode_supported_feature_key(inner, supported_feature_key, version)
    if value.finalized_features_epoch != -1 and version >= 3:
        inner = tagged[1] = writer.inner()
        inner += _Q.pack(value.finalized_features_epoch)
    if value.finalized_features and version >= 3:
        inner = tagged[2] = writer.inner()
        inner.amount(value.finalized_features)
        for finalized_feature_key in value.finalized_features:
            _encode_finalized_feature_key(inner, finalized_feature_key, version)
    if value.zk_migration_ready and version >= 3:
        inner = tagged[3] = writer.inner()
        inner += _T.pack(value.zk_migration_ready)
    writer.tags(tagged)


RESPONSE = ApiVersionsResponse
