"""The messages between the server of a metadata store and its clients, and their frames. No I/O here.

    +----------------+-----------------------------------+
    | length: u32 BE | MessagePack: [tag, id, fields …]  |
    +----------------+-----------------------------------+

A client chooses the ids of its requests. A response has the id of its request; a range has several, in pages, and a
watch any number. Both ends are processes of one installation, so there are no versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from flymq.metadata.store import Compare, Delete, DeletePrefix, EventBatch, Get, KeyValue, Op, Put

REQUEST_BYTES_MAX = 4 << 20
"""A txn has at most 1 MiB of keys and values."""
RESPONSE_BYTES_MAX = 256 << 20
"""All changes of one revision are in one message, and a prefix may have many keys."""

_LENGTH_BYTES = 4


class WireOp(NamedTuple):
    kind: str
    key: str
    value: bytes = b""
    lease: int = 0


class _Message(Struct, array_like=True, tag=True):
    id: int


class TxnRequest(_Message):
    compares: list[Compare]
    success: list[WireOp]
    failure: list[WireOp]


class RangeRequest(_Message):
    prefix: str


class WatchRequest(_Message):
    prefix: str
    from_revision: int


class Unwatch(_Message):
    """End the watch with this id. There is no response."""


class OpenSession(_Message):
    """Open a session with a lease that the client has chosen; if it is open already, renew it."""

    lease: int
    ttl_s: int


class RenewSession(_Message):
    lease: int


class EndSession(_Message):
    lease: int


class TxnDone(_Message):
    succeeded: bool
    revision: int
    found: list[KeyValue | None]


class Page(_Message):
    revision: int
    key_values: list[KeyValue]
    is_last: bool


class Changes(_Message):
    batch: EventBatch


class SessionOpen(_Message):
    ttl_s: int


class Done(_Message):
    pass


class Failed(_Message):
    code: str
    message: str


Request: TypeAlias = TxnRequest | RangeRequest | WatchRequest | Unwatch | OpenSession | RenewSession | EndSession
Response: TypeAlias = TxnDone | Page | Changes | SessionOpen | Done | Failed

_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(Request).decode
_decode_response = msgspec.msgpack.Decoder(Response).decode


class MalformedMessage(Exception):
    """The peer is no FlyMQ, or not of this version: the connection is closed."""


def encode(message: Request | Response) -> bytes:
    payload = _encode(message)
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


class Frames:
    """Cut a stream of bytes into messages. Raises MalformedMessage."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()

    def receive(self, data: bytes) -> None:
        self._buffer += data

    def requests(self) -> Iterator[Request]:
        for payload in self._payloads():
            try:
                request: Request = _decode_request(payload)
            except _MALFORMED as error:
                raise MalformedMessage(f"not a request: {error}") from error
            yield request

    def responses(self) -> Iterator[Response]:
        for payload in self._payloads():
            try:
                response: Response = _decode_response(payload)
            except _MALFORMED as error:
                raise MalformedMessage(f"not a response: {error}") from error
            yield response

    def _payloads(self) -> Iterator[bytes]:
        buffer = self._buffer
        at = 0
        while len(buffer) - at >= _LENGTH_BYTES:
            start = at + _LENGTH_BYTES
            length = int.from_bytes(buffer[at:start], "big")
            if length > self._bytes_max:
                raise MalformedMessage(f"a message of {length} bytes; at most {self._bytes_max} are allowed")
            if len(buffer) < start + length:
                break
            at = start + length
            yield bytes(buffer[start:at])
        del buffer[:at]


# --- operations -----------------------------------------------------------------------------------------------------

_KINDS: dict[type[Any], str] = {Put: "put", Delete: "delete", DeletePrefix: "delete prefix", Get: "get"}


def to_wire(ops: Sequence[Op]) -> list[WireOp]:
    return [WireOp(_KINDS[type(op)], *op) for op in ops]


def from_wire(ops: Sequence[WireOp]) -> list[Op]:
    return [_from_wire(op) for op in ops]


def _from_wire(op: WireOp) -> Op:
    match op.kind:
        case "put":
            return Put(op.key, op.value, op.lease)
        case "delete":
            return Delete(op.key)
        case "delete prefix":
            return DeletePrefix(op.key)
        case "get":
            return Get(op.key)
    raise MalformedMessage(f"not an operation: {op.kind!r}")
