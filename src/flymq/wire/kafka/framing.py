"""Requests and responses on the stream, and the few bytes in front of each.

    +----------------+--------------+--------------+----------------+------------------------+------+
    | length: i32 BE | api key: i16 | version: i16 | correlation id | client id: i16, UTF-8  | body |   request
    +----------------+--------------+--------------+----------------+------------------------+------+
    | length: i32 BE | correlation id: i32 | body |                                                   response
    +----------------+---------------------+------+

Requests and responses in the compact form have tagged fields behind the client id and the correlation id; only the
response to ApiVersions never has, since its reader cannot know yet.
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
    """What a request is, before its body is looked at."""

    api: int
    version: int
    correlation_id: int
    size: int
    """Bytes up to the body, or up to the tagged fields in front of it."""


class RequestCutter(StreamCutter[memoryview]):
    """Cuts what one connection receives into requests, without their lengths."""

    __slots__ = ("request_bytes_max",)

    def __init__(self, scratch: bytearray | None = None, *, request_bytes_max: int = REQUEST_BYTES_MAX) -> None:
        super().__init__(scratch, _LENGTH.size)
        self.request_bytes_max = request_bytes_max

    def body_length(self, buffer: memoryview, position: int) -> int:
        (length,) = _LENGTH.unpack_from(buffer, position)
        if length < 8:
            raise BrokenFrame(f"a request of {length} bytes cannot hold its own header")
        if length > self.request_bytes_max:
            raise RequestTooLarge(f"a request of {length} bytes; at most {self.request_bytes_max} are accepted")
        return int(length)

    def frame(self, buffer: memoryview, start: int, end: int) -> memoryview:
        return buffer[start + 4 : end]


def parse_head(request: memoryview) -> RequestHead:
    """Return the head of a request. The client id in it is nearly always the same: `parse_client_id` reads it."""
    if len(request) < _HEAD.size:
        raise BrokenFrame(f"a request of {len(request)} bytes cannot hold its own header")
    api, version, correlation_id, length = _HEAD.unpack_from(request)
    size = _HEAD.size + length if length > 0 else _HEAD.size
    if size > len(request):
        raise BrokenFrame("a request ends within its client id")
    return RequestHead(api, version, correlation_id, size)


def parse_client_id(request: memoryview, head: RequestHead) -> str:
    """Return how the client calls itself; nothing if it does not."""
    return str(request[_HEAD.size : head.size], "utf-8", "replace")


def speaks_kafka(first: bytes) -> Speaks:
    """Whether a stream may begin with these bytes: a length that can be one, and a known api key."""
    if first[0] > REQUEST_BYTES_MAX >> 24:
        return Speaks.NO
    if len(first) < _LENGTH_AND_KEY.size:
        return Speaks.MORE
    length, api = _LENGTH_AND_KEY.unpack_from(first)
    return Speaks.YES if 8 <= length <= REQUEST_BYTES_MAX and api in _KEYS else Speaks.NO


_LENGTH_AND_KEY = Struct(">ih")
_KEYS = frozenset(Api)


def seal_response(response: bytearray, correlation_id: int, further_bytes: int = 0) -> None:
    """Write the head of a response for which `RESPONSE_HEAD_SIZE` bytes were left free.

    `further_bytes` follow it from somewhere else.
    """
    _LENGTH_AND_ID.pack_into(response, 0, len(response) - 4 + further_bytes, correlation_id)
