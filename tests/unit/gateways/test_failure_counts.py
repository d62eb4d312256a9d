"""A request that fails, or a part of one, is counted once, under the protocol it came in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.delete_records.v1 import request as deletion
from kio.schema.delete_records.v1.response import DeleteRecordsResponse
from kio.schema.list_offsets.v5 import request as listing
from kio.schema.list_offsets.v5.response import ListOffsetsResponse
from kio.schema.produce.v8 import request as produce
from kio.schema.produce.v8.response import ProduceResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64
from tests.simulation.kafka import KafkaLink

from flymq.host.simulated_host import SimulatedMachine
from flymq.host.simulated_network import SimulatedNetwork
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.record.batch import encode_batch
from flymq.server.assemble import Server, assemble
from flymq.server.settings import load_config
from flymq.wire.native.codec import encode_request
from flymq.wire.native.messages import records as wire
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.topics import DeleteTopic

PORT = 9092


class _Client(asyncio.Protocol):
    """Sends, and does not care for answers."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


class Site:
    """A whole server with the topic `orders`, and clients that send it bytes."""

    def __init__(self) -> None:
        chance = random.Random(0)
        self._network = SimulatedNetwork(chance)
        self._machine = SimulatedMachine("broker", self._network, chance)
        self._client = SimulatedMachine("client", self._network, chance).host
        flags = {"broker.data_dir": "/data", "listener.host": "broker", "listener.http_port": -1}
        self.server: Server = assemble(self._machine.host, load_config(flags=flags))

    async def start(self) -> None:
        await self._machine.run(self.server.start())
        await self.server.broker.admin.create("orders", partitions=1, settings={"persistence": "disk"})

    async def stop(self) -> None:
        await self._machine.run(self.server.stop())

    async def send(self, data: bytes) -> None:
        """Send bytes and wait until they are answered."""
        client = await self._client.network.connect(_Client, "broker", PORT, None)
        client.transport.write(data)
        await asyncio.sleep(5)
        client.transport.abort()

    async def ask_kafka(self, request: Any, response: Any) -> None:
        link = KafkaLink(self._client.network, "broker", PORT, "app")
        await link.ask(request, response)
        link.close()

    @property
    def failures(self) -> dict[tuple[str, str], int]:
        return dict(self.server.broker.service.accounts.requests.failures)


def failures_after(ask: Callable[[Site], Awaitable[None]]) -> dict[tuple[str, str], int]:
    async def live() -> dict[tuple[str, str], int]:
        site = Site()
        await site.start()
        await ask(site)
        failures = site.failures
        await site.stop()
        return failures

    return run(live())


def a_batch() -> bytes:
    return bytes(encode_batch([(None, b"value")]))


# --- native

NATIVE: dict[str, tuple[Message, str]] = {
    "a whole request": (DeleteTopic("nothing"), "TOPIC_NOT_FOUND"),
    "a record": (wire.Produce("nothing", b"x"), "TOPIC_NOT_FOUND"),
    "an unanswered record": (wire.Produce("nothing", b"x", acks=Acks.NONE), "TOPIC_NOT_FOUND"),
    "one batch of two": (
        wire.ProduceBatch(
            [wire.PartitionBatches("orders", 0, a_batch()), wire.PartitionBatches("nothing", 0, a_batch())]
        ),
        "TOPIC_NOT_FOUND",
    ),
    "one fetched partition of two": (
        wire.Fetch([wire.FetchPartition("orders", 0, 0), wire.FetchPartition("nothing", 0, 0)], max_wait_ms=1_000),
        "TOPIC_NOT_FOUND",
    ),
    "one offset of two": (
        wire.ListOffsets([wire.OffsetQuery("orders", 0), wire.OffsetQuery("nothing", 0)]),
        "TOPIC_NOT_FOUND",
    ),
    "one deletion of two": (
        wire.DeleteRecords(
            [wire.DeleteRecordsPartition("orders", 0, -1), wire.DeleteRecordsPartition("nothing", 0, -1)]
        ),
        "TOPIC_NOT_FOUND",
    ),
    "an internal topic": (wire.Produce("__offsets", b"x"), "INTERNAL_TOPIC"),
}


@pytest.mark.parametrize("case", NATIVE)
def test_native_failures_are_counted_once(case: str) -> None:
    request, code = NATIVE[case]
    request.id = 1
    assert failures_after(lambda site: site.send(bytes(encode_request(request)))) == {("native", code): 1}


# --- Kafka


NAMES = ("orders", "nothing")
"""A topic that is there, and one that is not."""


def kafka_requests() -> dict[str, tuple[Any, Any]]:
    """Return requests for both topics, with the shape of their responses."""
    timeout, partition = i32Timedelta.parse(timedelta(seconds=1)), i32(0)
    batch: Any = produce.PartitionProduceData(index=partition, records=a_batch())
    produced = [produce.TopicProduceData(name=TopicName(name), partition_data=(batch,)) for name in NAMES]
    query = listing.ListOffsetsPartition(partition_index=partition, current_leader_epoch=i32(-1), timestamp=i64(-1))
    listed = [listing.ListOffsetsTopic(name=TopicName(name), partitions=(query,)) for name in NAMES]
    all_of_it = deletion.DeleteRecordsPartition(partition_index=partition, offset=i64(-1))
    deleted = [deletion.DeleteRecordsTopic(name=TopicName(name), partitions=(all_of_it,)) for name in NAMES]
    return {
        "one batch of two": (
            produce.ProduceRequest(transactional_id=None, acks=i16(1), timeout=timeout, topic_data=tuple(produced)),
            ProduceResponse,
        ),
        "one offset of two": (
            listing.ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=tuple(listed)),
            ListOffsetsResponse,
        ),
        "one deletion of two": (
            deletion.DeleteRecordsRequest(topics=tuple(deleted), timeout=timeout),
            DeleteRecordsResponse,
        ),
    }


@pytest.mark.parametrize("case", ["one batch of two", "one offset of two", "one deletion of two"])
def test_kafka_failures_are_counted_once(case: str) -> None:
    request, response = kafka_requests()[case]
    assert failures_after(lambda site: site.ask_kafka(request, response)) == {("kafka", "TOPIC_NOT_FOUND"): 1}


# --- REST


def http(method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: broker\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


REST: dict[str, tuple[bytes, str]] = {
    "a whole request": (http("GET", "/api/v1/topics/nothing"), "TOPIC_NOT_FOUND"),
    "records for no topic": (
        http("POST", "/api/v1/topics/nothing/records", b'{"records": [{"value": 1}]}'),
        "TOPIC_NOT_FOUND",
    ),
    "one record of two": (
        http(
            "POST",
            "/api/v1/topics/orders/records",
            b'{"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 9}]}',
        ),
        "PARTITION_NOT_FOUND",
    ),
    "a line that is none": (
        http("POST", "/api/v1/topics/orders/records", b'{"value": 1}\n{"value":\n', "application/x-ndjson"),
        "INVALID_REQUEST",
    ),
    "an offset out of range": (
        http("GET", "/api/v1/topics/orders/partitions/0/records?offset=99"),
        "OFFSET_OUT_OF_RANGE",
    ),
    "a consumer that is not there": (
        http("GET", "/api/v1/groups/g/consumers/nobody"),
        "CONSUMER_NOT_FOUND",
    ),
    "an internal topic": (http("DELETE", "/api/v1/topics/__offsets"), "INTERNAL_TOPIC"),
}


@pytest.mark.parametrize("case", REST)
def test_rest_failures_are_counted_once(case: str) -> None:
    request, code = REST[case]
    failures = failures_after(lambda site: site.send(request))
    assert list(failures.values()) == [1] and {name for _, name in failures} == {code}
    assert {protocol for protocol, _ in failures} == {"http"}
