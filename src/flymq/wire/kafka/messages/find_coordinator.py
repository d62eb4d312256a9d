"""FindCoordinator, versions 0 to 6. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 3
_B = Struct(">b")
_I = Struct(">i")
_IH = Struct(">ih")
_H = Struct(">h")


class FindCoordinatorRequest(msgspec.Struct):
    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = []


class Coordinator(msgspec.Struct):
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = None


class FindCoordinatorResponse(msgspec.Struct):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: list[Coordinator] = []


def parse_request(reader: Reader, version: int) -> FindCoordinatorRequest:
    key = ""
    if version <= 3:
        key = reader.string()
    key_type = 0
    if version >= 1:
        (key_type,) = reader.unpack(_B)
    coordinator_keys: list[str] = []
    if version >= 4:
        coordinator_keys = [reader.string() for _ in range(reader.count())]
    reader.end()
    return FindCoordinatorRequest(key, key_type, coordinator_keys)


def _encode_coordinator(writer: Writer, value: Coordinator, _version: int) -> None:
    writer.string(value.key)
    writer += _I.pack(value.node_id)
    writer.string(value.host)
    writer += _IH.pack(value.port, value.error_code)
    writer.nullable_string(value.error_message)
    writer.end()


def encode_response(writer: Writer, value: FindCoordinatorResponse, version: int) -> None:
    if version >= 1:
        writer += _I.pack(value.throttle_time_ms)
    if version <= 3:
        writer += _H.pack(value.error_code)
    if 1 <= version <= 3:
        writer.nullable_string(value.error_message)
    if version <= 3:
        writer += _I.pack(value.node_id)
    if version <= 3:
        writer.string(value.host)
    if version <= 3:
        writer += _I.pack(value.port)
    if version >= 4:
        writer.amount(value.coordinators)
        for coordinator in value.coordinators:
            _encode_coordinator(writer, coordinator, version)
    writer.end()


RESPONSE = FindCoordinatorResponse
