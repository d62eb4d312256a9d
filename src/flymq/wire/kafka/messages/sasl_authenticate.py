"""SaslAuthenticate, versions 0 to 2. Written by tools/generate_kafka_codecs.py: do not edit."""

from __future__ import annotations

from struct import Struct

import msgspec

from flymq.wire.kafka.values import Reader, Writer

COMPACT_FROM = 2
_H = Struct(">h")
_Q = Struct(">q")


class SaslAuthenticateRequest(msgspec.Struct):
    auth_bytes: bytes = b""


class SaslAuthenticateResponse(msgspec.Struct):
    error_code: int = 0
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


def parse_request(reader: Reader, version: int) -> SaslAuthenticateRequest:
    auth_bytes = reader.octets()
    reader.end()
    return SaslAuthenticateRequest(auth_bytes)


def encode_response(writer: Writer, value: SaslAuthenticateResponse, version: int) -> None:
    writer += _H.pack(value.error_code)
    writer.nullable_string(value.error_message)
    writer.octets(value.auth_bytes)
    if version >= 1:
        writer += _Q.pack(value.session_lifetime_ms)
    writer.end()


RESPONSE = SaslAuthenticateResponse
