"""Every request with an array, with the largest array that fits: it is refused, or served in pieces.

Meanwhile another client is served; so its answers tell that no request owns the event loop.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from struct import pack
from typing import Any

import msgspec
import pytest
from benchmarks.raw_client import RawClient

from flymq.testing import TestBroker, running_broker
from flymq.wire.kafka.apis import Api
from flymq.wire.native.framing import frame_header
from flymq.wire.native.messages.session import Done, Ping
from flymq.wire.native.messages.topics import CreateTopic
from flymq.wire.native.opcodes import Opcode

FRAME_BYTES = 17 << 20
FEW = 1_000
"""Elements of a request that is served, in pieces."""

# --- Kafka ----------------------------------------------------------------------------------------------------------


def text(value: bytes) -> bytes:
    return pack(">h", len(value)) + value


def array(count: int, item: bytes) -> bytes:
    return pack(">i", count) + item * count


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def compact(count: int, item: bytes) -> bytes:
    return varint(count + 1) + item * count


def of_topic(item: bytes) -> Callable[[int], bytes]:
    """One topic with many partitions."""
    return lambda count: array(1, text(b"t") + array(count, item))


def each(item: bytes) -> Callable[[int], bytes]:
    return lambda count: array(count, item)


Layout = tuple[int, bytes, Callable[[int], bytes], int, bytes]
"""Version, the bytes before the array, the array, the size of an element, the bytes after it."""

KAFKA: dict[Api, Layout] = {
    Api.METADATA: (8, b"", each(text(b"name")), 6, b"\0\0\0"),
    Api.PRODUCE: (7, pack(">hhi", -1, 1, 1000), of_topic(pack(">ii", 0, -1)), 8, b""),
    Api.FETCH: (
        11,
        pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, -1),
        of_topic(pack(">iiqqi", 0, -1, 0, -1, 1 << 20)),
        28,
        pack(">ih", 0, 0),
    ),
    Api.LIST_OFFSETS: (5, pack(">ib", -1, 0), of_topic(pack(">iiq", 0, -1, -1)), 16, b""),
    Api.OFFSET_COMMIT: (7, text(b"g") + pack(">ihh", -1, 0, -1), of_topic(pack(">iqih", 0, 1, -1, -1)), 18, b""),
    Api.OFFSET_FETCH: (5, text(b"g"), of_topic(pack(">i", 0)), 4, b""),
    Api.DESCRIBE_GROUPS: (3, b"", each(text(b"g")), 3, b"\0"),
    Api.DELETE_GROUPS: (1, b"", each(text(b"g")), 3, b""),
    Api.LEAVE_GROUP: (3, text(b"g"), each(text(b"m") + pack(">h", -1)), 5, b""),
    Api.JOIN_GROUP: (
        5,
        text(b"g") + pack(">ii", 10_000, 10_000) + text(b"") + pack(">h", -1) + text(b"consumer"),
        each(text(b"p") + pack(">i", 0)),
        7,
        b"",
    ),
    Api.SYNC_GROUP: (3, text(b"g") + pack(">i", 1) + text(b"m") + pack(">h", -1), each(text(b"m") + bytes(4)), 7, b""),
    Api.DESCRIBE_CONFIGS: (2, b"", each(b"\2" + text(b"t") + pack(">i", -1)), 8, b"\0"),
    Api.ALTER_CONFIGS: (1, b"", each(b"\2" + text(b"t") + bytes(4)), 8, b"\1"),
    Api.INCREMENTAL_ALTER_CONFIGS: (0, b"", each(b"\2" + text(b"t") + bytes(4)), 8, b"\1"),
    Api.CREATE_TOPICS: (4, b"", each(text(b"n") + pack(">ihii", 1, 1, 0, 0)), 17, pack(">ib", 1000, 1)),
    Api.DELETE_TOPICS: (3, b"", each(text(b"n")), 3, pack(">i", 1000)),
    Api.CREATE_PARTITIONS: (1, b"", each(text(b"n") + pack(">ii", 3, -1)), 11, pack(">ib", 1000, 1)),
    Api.DELETE_RECORDS: (1, b"", of_topic(pack(">iq", 0, 0)), 12, pack(">i", 1000)),
    Api.OFFSET_FOR_LEADER_EPOCH: (3, pack(">i", -1), of_topic(pack(">iii", 0, -1, 0)), 12, b""),
    Api.ADD_PARTITIONS_TO_TXN: (1, text(b"x") + pack(">qh", 1, 0), of_topic(pack(">i", 0)), 4, b""),
    Api.TXN_OFFSET_COMMIT: (
        2,
        text(b"x") + text(b"g") + pack(">qh", 1, 0),
        of_topic(pack(">iqih", 0, 1, -1, -1)),
        18,
        b"",
    ),
    Api.OFFSET_DELETE: (0, text(b"g"), of_topic(pack(">i", 0)), 4, b""),
    Api.DESCRIBE_LOG_DIRS: (1, b"", of_topic(pack(">i", 0)), 4, b""),
    Api.ELECT_LEADERS: (1, b"\0", of_topic(pack(">i", 0)), 4, pack(">i", 1000)),
    Api.FIND_COORDINATOR: (4, b"\0\0", lambda count: compact(count, b"\2g"), 2, b"\0"),
    Api.DESCRIBE_PRODUCERS: (0, b"\0\2\2t", lambda count: compact(count, bytes(4)), 4, b"\0\0"),
    Api.DESCRIBE_TRANSACTIONS: (0, b"\0", lambda count: compact(count, b"\2x"), 2, b"\0"),
    Api.LIST_TRANSACTIONS: (0, b"\0\1", lambda count: compact(count, bytes(8)), 8, b"\0"),
    Api.CONSUMER_GROUP_DESCRIBE: (0, b"\0", lambda count: compact(count, b"\2g"), 2, b"\0\0"),
    Api.STREAMS_GROUP_DESCRIBE: (0, b"\0", lambda count: compact(count, b"\2g"), 2, b"\0\0"),
    Api.DESCRIBE_TOPIC_PARTITIONS: (0, b"\0", lambda count: compact(count, b"\2t\0"), 3, pack(">ibb", 2000, -1, 0)),
}


def kafka_request(api: Api, count: int) -> bytes:
    version, before, make_array, _, after = KAFKA[api]
    body = pack(">hhih", api, version, 7, -1) + before + make_array(count) + after
    return pack(">i", len(body)) + body


# --- native ---------------------------------------------------------------------------------------------------------

_PARTITION = {"topic": "t", "partition": 0}
NATIVE: dict[Opcode, Callable[[int], dict[str, Any]]] = {
    Opcode.METADATA: lambda n: {"topics": ["name"] * n},
    Opcode.PRODUCE: lambda n: {"topic": "t", "value": b"", "headers": [["", None]] * n},
    Opcode.PRODUCE_BATCH: lambda n: {"partitions": [{**_PARTITION, "batches": b""}] * n},
    Opcode.FETCH: lambda n: {"partitions": [{**_PARTITION, "offset": 0}] * n},
    Opcode.LIST_OFFSETS: lambda n: {"partitions": [{**_PARTITION, "at": -1}] * n},
    Opcode.DELETE_RECORDS: lambda n: {"partitions": [{**_PARTITION, "before_offset": 0}] * n},
    Opcode.COMMIT: lambda n: {"group": "h", "offsets": [{**_PARTITION, "offset": 0}] * n},
    Opcode.FETCH_OFFSETS: lambda n: {"group": "h", "partitions": [_PARTITION] * n},
    Opcode.RESET_OFFSETS: lambda n: {"group": "h", "offsets": [{**_PARTITION, "offset": 0}] * n, "validate_only": True},
    Opcode.SUBSCRIBE: lambda n: {"group": "s", "topics": ["t"] * n},
    Opcode.SYNC: lambda n: {
        "group": "s",
        "member": "m",
        "generation": 1,
        "assignments": [{"member": "m", "partitions": [{"topic": "t", "partitions": [0] * n}]}],
    },
    Opcode.START_PUSH: lambda n: {
        "subscription": 1,
        "credit_bytes": 0,
        "partitions": [{**_PARTITION, "offset": 0}] * n,
    },
    Opcode.CREATE_TOPIC: lambda n: {"topic": "u", "settings": {str(number): "1" for number in range(n)}},
    Opcode.TXN_COMMIT_OFFSETS: lambda n: {
        "transactional_id": "x",
        "producer_id": 1,
        "producer_epoch": 0,
        "group": "h",
        "offsets": [{**_PARTITION, "offset": 0}] * n,
    },
    Opcode.COMMIT_ATTEMPTS: lambda n: {
        "query": "q",
        "batch": 0,
        "attempts": [{"transactional_id": "x", "producer_id": 1, "producer_epoch": 0}] * n,
    },
}


def native_request(opcode: Opcode, count: int) -> bytes:
    payload = msgspec.msgpack.encode({"id": 3, **NATIVE[opcode](count)})
    return frame_header(opcode, len(payload)) + payload


# --- tests ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with running_broker(settings={"topics.auto_create": False}) as broker:
        client = RawClient(broker.port)
        client.ask(CreateTopic(topic="t", partitions=1))
        client.close()
        yield broker


def send(broker: TestBroker, request: bytes) -> bytes:
    """Send a request; return the answer, or nothing if the broker closes the connection."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as raw:
        received = bytearray()
        try:
            raw.sendall(request)
            raw.shutdown(socket.SHUT_WR)
            while chunk := raw.recv(1 << 20):
                received += chunk
        except ConnectionError:
            pass  # it was refused before it was received
    beside = RawClient(broker.port)
    assert isinstance(beside.ask(Ping()), Done)
    beside.close()
    return bytes(received)


@pytest.mark.parametrize("api", KAFKA, ids=lambda api: api.name)
def test_a_kafka_request_with_millions_of_elements_is_refused(broker: TestBroker, api: Api) -> None:
    request = kafka_request(api, FRAME_BYTES // KAFKA[api][3])
    assert len(request) >= FRAME_BYTES - 100
    assert len(send(broker, request)) < 100  # an error code, or nothing where the response has no place for one


@pytest.mark.parametrize("api", KAFKA, ids=lambda api: api.name)
def test_a_kafka_request_with_many_elements_is_served(broker: TestBroker, api: Api) -> None:
    assert len(send(broker, kafka_request(api, FEW))) > 10


@pytest.mark.parametrize("opcode", NATIVE, ids=lambda opcode: opcode.name)
def test_a_native_request_with_a_million_elements_is_refused_with_an_error(broker: TestBroker, opcode: Opcode) -> None:
    answer = send(broker, native_request(opcode, 1_000_000))
    assert answer[2] == Opcode.ERROR
    error = msgspec.msgpack.decode(answer[7:])
    assert (error["id"], error["code"] in ("INVALID_REQUEST", "REQUEST_TOO_LARGE")) == (3, True)


@pytest.mark.parametrize("opcode", set(NATIVE) - {Opcode.SUBSCRIBE}, ids=lambda opcode: opcode.name)
def test_a_native_request_with_many_elements_is_answered(broker: TestBroker, opcode: Opcode) -> None:
    answer = send(broker, native_request(opcode, FEW))
    assert msgspec.msgpack.decode(answer[7:])["id"] == 3


# --- HTTP -----------------------------------------------------------------------------------------------------------


def post(body: bytes, media_type: str) -> bytes:
    head = f"POST /api/v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("body", "media_type", "status"),
    [
        (b'{"records":[' + b"{}," * 4_000_000 + b"{}]}", "application/json", b"413"),
        (b'{"records":[{"headers":[' + b'{"name":""},' * 1_000_000 + b'{"name":""}]}]}', "application/json", b"413"),
        (b'{"records":[{"value":' + b"[" * 4_000_000 + b"]" * 4_000_000 + b"}]}", "application/json", b"400"),
        (b'{"headers":[' + b'{"name":""},' * 1_000_000 + b'{"name":""}]}\n', "application/x-ndjson", b"207"),
        (b"{}\n" * 20_000, "application/x-ndjson", b"200"),
        (b'{"records":[' + b"{}," * 20_000 + b"{}]}", "application/json", b"200"),
    ],
    ids=["records", "headers", "nesting", "headers of a line", "short lines", "short records"],
)
def test_a_body_with_many_objects_is_refused_or_written_in_blocks(
    broker: TestBroker, body: bytes, media_type: str, status: bytes
) -> None:
    assert send(broker, post(body, media_type)).split(b" ")[1] == status
