"""Brokers on loopback that answer as a test says, to show what a client asks of whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from typing import Any

from flymq.client.aio.cluster import Cluster
from flymq.client.metrics import Counters
from flymq.client.settings import Address, ConnectionConfig
from flymq.model.coordinators import CoordinatorKind
from flymq.model.errors import FlyMQError
from flymq.wire.native.codec import decode_request, encode_answer, encode_error
from flymq.wire.native.framing import FrameCutter
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.groups import FindCoordinator, FindCoordinatorAnswer
from flymq.wire.native.messages.session import Hello, HelloAnswer
from flymq.wire.native.messages.topics import (
    BrokerAddress,
    Metadata,
    MetadataAnswer,
    PartitionMetadata,
    TopicMetadata,
)
from flymq.wire.native.opcodes import Opcode

Answer = Callable[[int, Message], Message | FlyMQError | None]


class FakeBrokers:
    """Brokers 0, 1, … that agree on the leaders of `orders` and on the coordinators. What else they are asked, `answer`
    decides with the number of the broker; None: no answer."""

    def __init__(self, count: int, answer: Answer, *, opcodes: tuple[Opcode, ...] = tuple(Opcode)) -> None:
        self.leaders: list[tuple[int, int]] = [(0, 0)]  # broker and leader epoch of each partition
        self.coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self.topic_id = b"0123456789abcdef"
        self.silent: set[int] = set()
        self.addresses: list[Address] = []
        self.advertised: dict[int, Address] = {}
        self.asked: list[tuple[int, Message]] = []
        self._count = count
        self._answer = answer
        self._opcodes = [int(opcode) for opcode in opcodes]
        self._servers: list[asyncio.Server] = []
        self._writers: dict[int, list[asyncio.StreamWriter]] = {}

    def asked_of(self, kind: type[Message]) -> list[int]:
        """Return the brokers that were asked this, in order."""
        return [broker for broker, request in self.asked if isinstance(request, kind)]

    def kill(self, broker: int) -> None:
        """Reset all connections and refuse others."""
        self._servers[broker].close()
        for writer in self._writers.get(broker, ()):
            writer.transport.abort()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as connections:

            def accept(broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                self._writers.setdefault(broker, []).append(writer)
                connections.create_task(self._serve(broker, reader, writer))

            for broker in range(self._count):
                self._servers.append(await asyncio.start_server(partial(accept, broker), "127.0.0.1", 0))
            self.addresses = [server.sockets[0].getsockname() for server in self._servers]
            try:
                yield
            finally:
                for broker in range(self._count):
                    self.kill(broker)

    @asynccontextmanager
    async def cluster(self, *bootstrap: Address, **settings: Any) -> AsyncIterator[Cluster]:
        """A client of these brokers, which knows the address of the first one unless others are given."""
        async with self.running():
            config = ConnectionConfig(
                addresses=bootstrap or (self.addresses[0],), **{"retry_backoff_ms": 1, **settings}
            )
            cluster = Cluster(config, Counters())
            try:
                yield cluster
            finally:
                await cluster.close()

    async def _serve(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cutter = FrameCutter()
        with closing(writer), suppress(ConnectionResetError):
            while data := await reader.read(65536):
                for opcode, payload in cutter.feed(data):
                    request = decode_request(opcode, payload)
                    self.asked.append((broker, request))
                    answer = None if broker in self.silent else self._known_answer(broker, request)
                    if isinstance(answer, FlyMQError):
                        writer.write(encode_error(answer, request.id))
                    elif answer is not None:
                        answer.id = request.id
                        writer.write(encode_answer(opcode, answer))

    def _known_answer(self, broker: int, request: Message) -> Message | FlyMQError | None:
        match request:
            case Hello():
                return HelloAnswer(server="fake", version="0", broker=broker, opcodes=self._opcodes)
            case Metadata():
                return self._metadata()
            case FindCoordinator():
                found = self.coordinators[request.kind, request.key]
                host, port = self.addresses[found]
                return FindCoordinatorAnswer(broker=found, host=host, port=port)
        return self._answer(broker, request)

    def _metadata(self) -> MetadataAnswer:
        brokers = [
            BrokerAddress(number, *self.advertised.get(number, address))
            for number, address in enumerate(self.addresses)
        ]
        parts = [PartitionMetadata(n, leader, epoch) for n, (leader, epoch) in enumerate(self.leaders)]
        orders = TopicMetadata(topic="orders", topic_id=self.topic_id, partitions=parts)
        return MetadataAnswer(cluster_id="fake", brokers=brokers, topics=[orders])
