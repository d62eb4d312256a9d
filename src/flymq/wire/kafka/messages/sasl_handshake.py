"""SaslHandshake, versions 0 to 1. Written by tools/generate_kafka_codecs.py: do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 2
_H = Struct(">h")


@dataclass(slots=True)
class SaslHandshakeRequest:
    mechanism: str = ""


@dataclass(slots=True)
class SaslHandshakeResponse:
    error_code: int = 0
    mechanisms: list[str] = field(default_factory=list)


def parse_request(reader: Reader, version: int) -> SaslHandshakeRequest:
    mechanism = reader.string()
    reader.end()
    return SaslHandshakeRequest(mechanism)


def encode_response(writer: Writer, value: SaslHandshakeResponse, version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.amount(value.mechanisms)
    for one_string in value.mechanisms:
        writer.string(one_string)
    writer.end()
