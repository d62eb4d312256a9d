"""Requests go to the leaders of partitions, and to the new leader after leadership has moved."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial

import pytest

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.leaders import ask_leader, ask_leaders
from flymq.client.metrics import Counters
from flymq.client.settings import ConnectionConfig
from flymq.model.errors import NotLeader, OffsetOutOfRange
from flymq.wire.native.codec import decode_request, encode_answer, encode_error
from flymq.wire.native.framing import FrameCutter
from flymq.wire.native.messages.fields import Failure, Message
from flymq.wire.native.messages.records import (
    Consume,
    ConsumeAnswer,
    ListOffsets,
    ListOffsetsAnswer,
    OffsetFound,
    OffsetQuery,
)
from flymq.wire.native.messages.session import Hello, HelloAnswer
from flymq.wire.native.messages.topics import (
    BrokerAddress,
    Metadata,
    MetadataAnswer,
    PartitionMetadata,
    TopicMetadata,
)


class TwoBrokers:
    """Brokers 0 and 1 on loopback; who leads each partition of `orders` changes with the first request about them."""

    def __init__(self, before: list[int], after: list[int]) -> None:
        self.leaders = before
        self._after = after
        self.ports: list[int] = []
        self.asked: list[tuple[int, list[int]]] = []  # (broker, partitions) in the order of the requests
        self.refusal: Callable[[int, int], Failure | None] = self._not_leader

    def _not_leader(self, broker: int, partition: int) -> Failure | None:
        return None if self._after[partition] == broker else Failure(NotLeader.code, "not leader", retriable=True)

    def answer(self, broker: int, request: Message) -> Message | Failure:
        match request:
            case Hello():
                return HelloAnswer(server="fake", version="0", broker=broker)
            case Metadata():
                brokers = [BrokerAddress(number, "127.0.0.1", port) for number, port in enumerate(self.ports)]
                parts = [PartitionMetadata(n, leader) for n, leader in enumerate(self.leaders)]
                return MetadataAnswer(
                    cluster_id="fake", brokers=brokers, topics=[TopicMetadata(topic="orders", partitions=parts)]
                )
            case Consume():
                self.asked.append((broker, [request.partition]))
                failure = self.refusal(broker, request.partition)
                self.leaders = self._after
                return failure or ConsumeAnswer("orders", request.partition, request.offset)
        assert isinstance(request, ListOffsets)
        self.asked.append((broker, [part.partition for part in request.partitions]))
        found = [
            OffsetFound("orders", part.partition, offset=7, error=self.refusal(broker, part.partition))
            for part in request.partitions
        ]
        self.leaders = self._after
        return ListOffsetsAnswer(partitions=found)

    async def serve(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cutter = FrameCutter()
        with closing(writer), suppress(ConnectionResetError):  # a client that closes does not say goodbye
            while data := await reader.read(65536):
                for opcode, payload in cutter.feed(data):
                    request = decode_request(opcode, payload)
                    answer = self.answer(broker, request)
                    if isinstance(answer, Failure):
                        writer.write(encode_error(NotLeader(answer.message), request.id))
                    else:
                        answer.id = request.id
                        writer.write(encode_answer(opcode, answer))

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[Cluster]:
        async with asyncio.TaskGroup() as connections:

            def connect(broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                connections.create_task(self.serve(broker, reader, writer))

            servers = [await asyncio.start_server(partial(connect, broker), "127.0.0.1", 0) for broker in (0, 1)]
            self.ports = [server.sockets[0].getsockname()[1] for server in servers]
            config = ConnectionConfig(addresses=(("127.0.0.1", self.ports[0]),), retry_backoff_ms=1)
            cluster = Cluster(config, Counters())
            try:
                yield cluster
            finally:
                await cluster.close()
                for server in servers:
                    server.close()


def _queries(*partitions: int) -> list[OffsetQuery]:
    return [OffsetQuery("orders", partition) for partition in partitions]


async def _list(cluster: Cluster, *partitions: int) -> dict[int, int]:
    found = await ask_leaders(
        cluster, _queries(*partitions), lambda parts: ListOffsets(partitions=parts), ListOffsetsAnswer
    )
    return {part.partition: part.offset for part in found}


async def test_each_leader_is_asked_once_for_all_its_partitions():
    brokers = TwoBrokers([0, 1, 0], [0, 1, 0])
    async with brokers.cluster() as cluster:
        assert await _list(cluster, 0, 1, 2) == {0: 7, 1: 7, 2: 7}
    assert brokers.asked == [(0, [0, 2]), (1, [1])]


async def test_after_leadership_has_moved_the_new_leader_is_asked_for_what_is_left():
    brokers = TwoBrokers([0, 0], [0, 1])
    async with brokers.cluster() as cluster:
        assert await _list(cluster, 0, 1) == {0: 7, 1: 7}
    assert brokers.asked == [(0, [0, 1]), (1, [1])]


async def test_a_request_that_fails_as_a_whole_goes_to_the_new_leader_too():
    brokers = TwoBrokers([0], [1])
    async with brokers.cluster() as cluster:
        answer = await ask_leader(cluster, Consume(topic="orders", offset=3))
        assert answer.offset == 3
    assert brokers.asked == [(0, [0]), (1, [0])]


async def test_a_failure_that_no_retry_can_mend_is_raised():
    brokers = TwoBrokers([0], [0])
    brokers.refusal = lambda broker, partition: Failure(code=OffsetOutOfRange.code, message="gone")
    async with brokers.cluster() as cluster:
        with pytest.raises(OffsetOutOfRange, match="gone"):
            await _list(cluster, 0)
    assert brokers.asked == [(0, [0])]
