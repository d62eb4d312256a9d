"""SaslHandshake, versions 0 to 1. Written by tools/generate_kafka_codecs.py: do not edit."""

# msgspec copies an empty list that is a default

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 2
_H = Struct(">h")


class SaslHandshakeRequest(msgspec.Struct):
    mechanism: str = ""


class SaslHandshakeResponse(msgspec.Struct):
    error_code: int = 0
    mechanisms: list[str] = []


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


RESPONSE = SaslHandshakeResponse
