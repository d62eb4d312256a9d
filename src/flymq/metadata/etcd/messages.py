"""The messages of etcd's JSON gateway, as far as they are used here.

Keys and values are base64 in JSON, 64-bit numbers are strings, and what has its default value is left out. Keys on this
side are relative to the prefix of the cluster, `/flymq/<cluster>/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from flymq.metadata.store import (
    NO_LEASE,
    Compare,
    Delete,
    DeletePrefix,
    Event,
    EventBatch,
    Get,
    KeyValue,
    Op,
    Put,
    Relation,
    Target,
    TxnResult,
    key_bounds,
)

RANGE = "/v3/kv/range"
TXN = "/v3/kv/txn"
WATCH = "/v3/watch"
GRANT = "/v3/lease/grant"
KEEPALIVE = "/v3/lease/keepalive"
REVOKE = "/v3/lease/revoke"
AUTHENTICATE = "/v3/auth/authenticate"
STATUS = "/v3/maintenance/status"


class Header(Struct):
    revision: int = 0
    cluster_id: int = 0


class WireKeyValue(Struct):
    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0


class RangeResponse(Struct):
    header: Header
    kvs: list[WireKeyValue] = []
    more: bool = False


class OpResponse(Struct):
    response_range: RangeResponse | None = None


class TxnResponse(Struct):
    header: Header
    succeeded: bool = False
    responses: list[OpResponse] = []


class LeaseResponse(Struct):
    header: Header
    TTL: int = 0  # 0: there is no such lease


class WireEvent(Struct):
    kv: WireKeyValue
    type: str = "PUT"


class WatchResponse(Struct):
    header: Header
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[WireEvent] = []


class StatusResponse(Struct):
    header: Header
    version: str = ""


class TokenResponse(Struct):
    token: str


class Failure(Struct):
    """An error: of a call, or as a line of a stream, where older versions give the code another name."""

    message: str = ""
    code: int | None = None
    grpc_code: int | None = None


class KeepaliveLine(Struct):
    result: LeaseResponse | None = None
    error: Failure | None = None


class WatchLine(Struct):
    result: WatchResponse | None = None
    error: Failure | None = None


def _parser_of(kind: type[Any]) -> Callable[[bytes], Any]:
    decode = msgspec.json.Decoder(kind, strict=False).decode  # not strict: numbers may be strings

    def parse(raw: bytes) -> Any:
        try:
            return decode(raw)
        except (UnicodeDecodeError, RecursionError) as error:
            raise msgspec.DecodeError(str(error)) from error

    return parse


# Each raises msgspec.MsgspecError for what is not such a message.
parse_range: Callable[[bytes], RangeResponse] = _parser_of(RangeResponse)
parse_txn: Callable[[bytes], TxnResponse] = _parser_of(TxnResponse)
parse_lease: Callable[[bytes], LeaseResponse] = _parser_of(LeaseResponse)
parse_keepalive: Callable[[bytes], KeepaliveLine] = _parser_of(KeepaliveLine)
parse_watch: Callable[[bytes], WatchLine] = _parser_of(WatchLine)
parse_status: Callable[[bytes], StatusResponse] = _parser_of(StatusResponse)
parse_token: Callable[[bytes], TokenResponse] = _parser_of(TokenResponse)
parse_failure: Callable[[bytes], Failure] = _parser_of(Failure)

encode = msgspec.json.Encoder().encode


# --- txn ------------------------------------------------------------------------------------------------------------

_TARGETS = {
    Target.VALUE: ("VALUE", "value"),
    Target.CREATE_REVISION: ("CREATE", "create_revision"),
    Target.MOD_REVISION: ("MOD", "mod_revision"),
}
_RELATIONS = {
    Relation.EQUAL: "EQUAL",
    Relation.NOT_EQUAL: "NOT_EQUAL",
    Relation.LESS: "LESS",
    Relation.GREATER: "GREATER",
}


def encode_txn(prefix: str, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> bytes:
    return encode(
        {
            "compare": [_compare(prefix, compare) for compare in compares],
            "success": [_op(prefix, op) for op in success],
            "failure": [_op(prefix, op) for op in failure],
        }
    )


def _compare(prefix: str, compare: Compare) -> dict[str, Any]:
    target, field = _TARGETS[compare.target]
    return {
        "key": (prefix + compare.key).encode(),
        "target": target,
        "result": _RELATIONS[compare.relation],
        field: compare.expected,
    }


def _op(prefix: str, op: Op) -> dict[str, Any]:
    match op:
        case Get(key):
            return {"request_range": {"key": (prefix + key).encode()}}
        case Put(key, value, lease):
            put: dict[str, Any] = {"key": (prefix + key).encode(), "value": value}
            if lease != NO_LEASE:
                put["lease"] = lease
            return {"request_put": put}
        case Delete(key):
            return {"request_delete_range": {"key": (prefix + key).encode()}}
        case DeletePrefix(under):
            start, end = key_bounds(prefix + under)
            return {"request_delete_range": {"key": start, "range_end": end}}


def txn_result(prefix: str, response: TxnResponse) -> TxnResult:
    found = tuple(
        key_value(prefix, op.response_range.kvs[0]) if op.response_range.kvs else None
        for op in response.responses
        if op.response_range is not None
    )
    return TxnResult(response.succeeded, response.header.revision, found)


def key_value(prefix: str, wire: WireKeyValue) -> KeyValue:
    key = wire.key.decode(errors="surrogateescape")  # somebody else's key must not end a watch
    return KeyValue(key[len(prefix) :], wire.value, wire.create_revision, wire.mod_revision)


# --- range, watch, lease --------------------------------------------------------------------------------------------


def encode_range(start: bytes, end: bytes, *, limit: int, revision: int = 0) -> bytes:
    return encode({"key": start, "range_end": end, "limit": limit, "revision": revision})


def encode_probe(prefix: str) -> bytes:
    """A linearizable read of nothing: its response has the latest revision."""
    return encode({"key": prefix.encode(), "count_only": True})


def encode_watch(prefix: str, from_revision: int) -> bytes:
    start, end = key_bounds(prefix)
    # The server reports its progress every ten minutes, so that a quiet watch can be resumed after a compaction.
    wanted = {"key": start, "range_end": end, "start_revision": from_revision, "progress_notify": True}
    return encode({"create_request": wanted})


def event_batches(prefix: str, events: Sequence[WireEvent]) -> Iterator[EventBatch]:
    """Group the events by revision. A response never has only a part of those of a revision."""
    for revision, group in groupby(events, key=lambda event: event.kv.mod_revision):
        yield EventBatch(revision, tuple(_event(prefix, event) for event in group))


def _event(prefix: str, event: WireEvent) -> Event:
    found = key_value(prefix, event.kv)
    return Event(found.key, None if event.type == "DELETE" else found)


def encode_grant(lease: int, ttl_s: int) -> bytes:
    return encode({"ID": lease, "TTL": ttl_s})


def encode_lease(lease: int) -> bytes:
    return encode({"ID": lease})


def encode_login(user: str, password: str) -> bytes:
    return encode({"name": user, "password": password})
