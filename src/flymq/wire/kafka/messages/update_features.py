"""UpdateFeatures, versions 0 to 2. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 0
_H = Struct(">h")
_T = Struct(">?")
_B = Struct(">b")
_I = Struct(">i")
_IH = Struct(">ih")


class FeatureUpdateKey(msgspec.Struct):
    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False
    upgrade_type: int = 1


class UpdateFeaturesRequest(msgspec.Struct):
    timeout_ms: int = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: bool = False


class UpdatableFeatureResult(msgspec.Struct):
    feature: str = ""
    error_code: int = 0
    error_message: str | None = None


class UpdateFeaturesResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    results: list[UpdatableFeatureResult] = []


def _parse_feature_update_key(reader: Reader, version: int) -> FeatureUpdateKey:
    feature = reader.string()
    (max_version_level,) = reader.unpack(_H)
    allow_downgrade = False
    if version <= 0:
        (allow_downgrade,) = reader.unpack(_T)
    upgrade_type = 1
    if version >= 1:
        (upgrade_type,) = reader.unpack(_B)
    reader.end()
    return FeatureUpdateKey(feature, max_version_level, allow_downgrade, upgrade_type)


def parse_request(reader: Reader, version: int) -> UpdateFeaturesRequest:
    (timeout_ms,) = reader.unpack(_I)
    feature_updates = [_parse_feature_update_key(reader, version) for _ in range(reader.count())]
    validate_only = False
    if version >= 1:
        (validate_only,) = reader.unpack(_T)
    reader.end()
    return UpdateFeaturesRequest(timeout_ms, feature_updates, validate_only)


def _encode_updatable_feature_result(writer: Writer, value: UpdatableFeatureResult, _version: int) -> None:
    writer.string(value.feature)
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.error_message)
    writer.end()


def encode_response(writer: Writer, value: UpdateFeaturesResponse, version: int) -> None:
    writer += _IH.pack(value.throttle_time_ms, value.error_code)
    writer.nullable_string(value.error_message)
    if version <= 1:
        writer.amount(value.results)
        for updatable_feature_result in value.results:
            _encode_updatable_feature_result(writer, updatable_feature_result, version)
    writer.end()


RESPONSE = UpdateFeaturesResponse
