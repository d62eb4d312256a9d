"""Requests and responses on the stream, and their headers.

    +----------------+--------------+--------------+----------------+------------------------+------+
    | length: i32 BE | api key: i16 | version: i16 | correlation id | client id: i16, UTF-8  | body |   request
    +----------------+--------------+--------------+----------------+------------------------+------+
    | length: i32 BE | correlation id: i32 | body |                                                   response
    +----------------+---------------------+------+

Requests and responses in flexible versions have tagged fields after the client id and the correlation id; only the
response to ApiVersions never has, since the client does not know the version yet.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from flymq.model.errors import BrokenFrame, RequestTooLarge
from flymq.wire.first_bytes import Speaks
from flymq.wire.framing import StreamCutter
from flymq.wire.kafka.apis import Api

REQUEST_BYTES_MAX = 64 << 20

_LENGTH = Struct(">i")
_HEAD = Struct(">hhih")
_LENGTH_AND_ID = Struct(">ii")
RESPONSE_HEAD_SIZE = _LENGTH_AND_ID.size


class RequestHead(NamedTuple):
    """The header of a request."""

    api: int
    version: int
    correlation_id: int
    size: int
    """Size up to the body, or up to the tagged fields before it."""


class RequestCutter(StreamCutter[memoryview]):
    """Splits the received bytes of one connection into requests, without their lengths."""

    __slots__ = ()

    def __init__(self, scratch: bytearray | None = None, *, body_bytes_max: int = REQUEST_BYTES_MAX) -> None:
        super().__init__(scratch, _LENGTH.size, body_bytes_max)

    def body_length(self, buffer: memoryview, position: int) -> int:
        (length,) = _LENGTH.unpack_from(buffer, position)
        if length < 8:
            raise BrokenFrame(f"a request of {length} bytes cannot hold its own header")
        if length > self.body_bytes_max:
            raise RequestTooLarge(f"the request has {length} bytes, the limit is {self.body_bytes_max}")
        return int(length)

    def frame(self, buffer: memoryview, start: int, end: int) -> memoryview:
        return buffer[start + 4 : end]


def parse_head(request: memoryview) -> RequestHead:
    """Return the header of a request. The client id is nearly always the same: `parse_client_id` reads it."""
    if len(request) < _HEAD.size:
        raise BrokenFrame(f"a request of {len(request)} bytes cannot hold its own header")
    api, version, correlation_id, length = _HEAD.unpack_from(request)
    size = _HEAD.size + length if length > 0 else _HEAD.size
    if size > len(request):
        raise BrokenFrame("a request ends within its client id")
    return RequestHead(api, version, correlation_id, size)


def parse_client_id(request: memoryview, head: RequestHead) -> str:
    """Return the client id; empty if it is not set."""
    return str(request[_HEAD.size : head.size], "utf-8", "replace")


def speaks_kafka(first: bytes) -> Speaks:
    """Whether these can be the first bytes of a Kafka request: a plausible length and a known API key."""
    if first[0] > REQUEST_BYTES_MAX >> 24:
        return Speaks.NO
    if len(first) < _LENGTH_AND_KEY.size:
        return Speaks.MORE
    length, api = _LENGTH_AND_KEY.unpack_from(first)
    return Speaks.YES if 8 <= length <= REQUEST_BYTES_MAX and api in _KEYS else Speaks.NO


_LENGTH_AND_KEY = Struct(">ih")
_KEYS = frozenset(Api)


def seal_response(response: bytearray, correlation_id: int, further_bytes: int = 0) -> None:
    """Write the header of a response for which `RESPONSE_HEAD_SIZE` bytes were reserved.

    `further_bytes` are sent after it from elsewhere.
    """
    _LENGTH_AND_ID.pack_into(response, 0, len(response) - 4 + further_bytes, correlation_id)
