"""Encode and decode messages with the generated modules, each of which is imported on first use.

Invalid input always raises a FlyMQError, never anything else.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from struct import error as StructError  # noqa: N812
from typing import Any, Protocol

from flymq.model.errors import InvalidRequest
from flymq.wire.kafka.apis import Api
from flymq.wire.kafka.framing import RESPONSE_HEAD_SIZE, seal_response
from flymq.wire.kafka.values import ELEMENTS_MAX, Body, Buffer, CompactReader, CompactWriter, Reader, Writer

_ELEMENTS_MAX_OF: dict[int, int] = {
    Api.PRODUCE: 10_000,
    Api.FETCH: 20_000,
    Api.JOIN_GROUP: 1_000,
    Api.ADD_PARTITIONS_TO_TXN: 5_000,
    Api.CREATE_TOPICS: 20_000,
    Api.CONSUMER_GROUP_HEARTBEAT: 20_000,
    Api.STREAMS_GROUP_HEARTBEAT: 10_000,
    Api.SYNC_GROUP: 10_000,
    Api.DESCRIBE_CONFIGS: 10_000,
    Api.LIST_PARTITION_REASSIGNMENTS: 20_000,
    Api.DESCRIBE_QUORUM: 1_000,
    Api.UPDATE_FEATURES: 1_000,
}
"""Less than others may have: they are served as a whole, or their responses are much larger."""


class Messages(Protocol):
    """The interface of the modules in `messages`."""

    COMPACT_FROM: int
    RESPONSE: type[Any]

    def parse_request(self, reader: Reader, version: int, /) -> Any: ...

    def encode_response(self, writer: Writer, value: Any, version: int, /) -> None: ...


@cache
def messages_of(api: int) -> Messages:
    """Return the module of a request."""
    module: Any = import_module(f"flymq.wire.kafka.messages.{Api(api).name.lower()}")
    return module  # type: ignore[no-any-return]


def parse_request(api: int, version: int, request: memoryview, head_size: int) -> Any:
    """Return the request whose body starts after `head_size` bytes. Its record batches are views of `request`."""
    messages = messages_of(api)
    elements_max = _ELEMENTS_MAX_OF.get(api, ELEMENTS_MAX)
    try:
        if version < messages.COMPACT_FROM:
            return messages.parse_request(Reader(request, head_size, elements_max), version)
        reader = CompactReader(request, head_size, elements_max)
        reader.end()
        return messages.parse_request(reader, version)
    except (StructError, IndexError):
        raise InvalidRequest(f"{Api(api).name} version {version}: the request ends too early") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{Api(api).name} version {version}: a string is not UTF-8") from None


def begin_response(api: int, version: int) -> Writer:
    """Return a response with space for its header, which `seal_response` writes at the end."""
    if version < messages_of(api).COMPACT_FROM:
        return Writer(RESPONSE_HEAD_SIZE)
    writer = CompactWriter(RESPONSE_HEAD_SIZE)
    if api != Api.API_VERSIONS:
        writer.end()
    return writer


def encode_response(api: int, version: int, correlation_id: int, response: Any) -> list[Buffer | Body]:
    """Return a response, length-prefixed, in the pieces in which it is sent."""
    writer = begin_response(api, version)
    messages_of(api).encode_response(writer, response, version)
    bodies = writer.bodies
    seal_response(writer, correlation_id, sum(body.length for _, body in bodies) if bodies else 0)
    return writer.pieces() if bodies else [writer]
