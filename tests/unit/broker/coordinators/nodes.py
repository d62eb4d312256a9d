"""Several brokers on one metadata store, in one process: everything is real but the network between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
from tests.unit.broker.world import World

from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.set_aside import SetAside
from flymq.broker.coordinators.state_log import OFFSETS, TRANSACTIONS, StateLog
from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.replicas.partition import Partition, Written
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.service.caller import Caller
from flymq.broker.service.first_batches import FirstBatches
from flymq.broker.service.gate import Gate
from flymq.broker.service.peer_transactions import PeerTransactions
from flymq.broker.service.slow_appends import SlowAppends
from flymq.cluster.catalog import Catalog, PartitionState, partition_key
from flymq.cluster.image import Image
from flymq.coordination.entries import ProducerIdentity
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.coordination.transaction_table import TransactionTable
from flymq.coordination.transactions import TransactionLimits
from flymq.gateways.native.handlers import HANDLERS
from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import InlineThreads, Tasks
from flymq.host.virtual_time import run
from flymq.metadata.store import Put
from flymq.model.coordinators import Joining
from flymq.model.delivery import Acks
from flymq.model.errors import BrokerUnavailable
from flymq.model.names import TopicPartition
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import encode_batch
from flymq.storage.data_directory import DataDirectory
from flymq.storage.flusher import Flusher
from flymq.wire.native.codec import decode_request, encode_request
from flymq.wire.native.framing import HEADER_SIZE
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.operations import OPCODE_OF

M = TypeVar("M", bound=Message)
ONE, TWO = 1, 2
ORDERS = [TopicPartition("orders", number) for number in range(2)]
OFFSETS_0, TRANSACTIONS_0 = TopicPartition(OFFSETS, 0), TopicPartition(TRANSACTIONS, 0)


class DirectPeers:
    """Calls the handlers of the other brokers, with requests that were encoded and decoded."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def request(self, broker_id: int, request: Message, answer: type[M], *, timeout_s: float) -> M:
        self._nodes.requests.append((broker_id, type(request).__name__))
        if broker_id in self._nodes.cut_off:
            raise BrokerUnavailable(f"broker {broker_id} is cut off")
        opcode = OPCODE_OF[type(request)]
        handler: Any = HANDLERS[opcode]
        received = decode_request(opcode, memoryview(encode_request(request))[HEADER_SIZE:])
        node = self._nodes.by_id[broker_id]
        connection = SimpleNamespace(service=node.service, caller=Caller("native"))
        found = await handler(connection, received)
        await self._nodes.before_answer(found)
        assert isinstance(found, answer)
        return found


class Node:
    """One broker."""

    def __init__(self, world: World, broker_id: int, nodes: Nodes) -> None:
        clock = world.machine.host.clock
        self.broker_id = broker_id
        self.tasks = Tasks(_failed)
        self.disk = SimulatedDisk()
        self.image = Image(world.store, TopicConfig(), broker_id=broker_id)
        directory = DataDirectory(self.disk, Path("/data"))
        flusher = Flusher(InlineThreads(), self.tasks, _fsync_failed)
        self.replicas = Replicas(broker_id, self.image, directory, flusher, clock, InlineThreads(), self.tasks)
        set_aside, limits = SetAside(self.disk, Path("/data")), GroupLimits()
        more = (self.replicas, clock, InlineThreads(), set_aside)
        self.groups = Groups(
            StateLog(OFFSETS, 1, lambda: GroupTable(limits), *more),
            self.image,
            self.replicas,
            clock,
            world.machine.host.entropy,
            self.tasks,
            limits,
        )
        self.transactions = Transactions(
            StateLog(TRANSACTIONS, 1, TransactionTable, *more),
            self.image,
            self.replicas,
            self.groups,
            ProducerIds(Catalog(world.store)),
            clock,
            self.tasks,
            TransactionLimits(),
            DirectPeers(nodes),
        )
        self.first_batches = FirstBatches(self.transactions, SlowAppends(InlineThreads(), clock))
        self.service = SimpleNamespace(peer_transactions=PeerTransactions(self.transactions, Gate()))

    async def start(self) -> None:
        await self.image.load()
        self.tasks.spawn("image", self.image.follow())
        await self.replicas.open()
        await self.groups.open()
        await self.transactions.open()

    def partition(self, name: TopicPartition) -> Partition:
        return self.replicas.get(name)

    async def produce(
        self, name: str, partition: TopicPartition, batch: bytes, joining: Joining = Joining.WRITTEN
    ) -> Written:
        """Append a batch as the service does."""
        found = self.partition(partition)
        if self.first_batches.must_queue(found, batch):

            def append(holds: Callable[[], bool], batches: Any) -> Written:
                return self.transactions.produce(name, found, batches, Acks.ALL, joining, holds=holds)

            return await self.first_batches.add(name, found, batch, joining, append)
        written = self.transactions.produce(name, found, batch, Acks.ALL, joining)
        if written.safe is not None:
            await written.safe
        return written

    async def close(self) -> None:
        self.groups.close()
        self.transactions.close()
        await self.first_batches.close()
        await self.tasks.close()


class Nodes:
    """Two brokers. The first one leads `orders-0` and coordinates groups, the second `orders-1` and transactions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cut_off: set[int] = set()
        self.requests: list[tuple[int, str]] = []
        """The broker that was asked, and for what."""
        self.before_answer: Callable[[Message], Awaitable[None]] = _at_once
        """Awaited before an answer arrives."""
        self.by_id = {broker_id: Node(world, broker_id, self) for broker_id in (ONE, TWO)}

    @property
    def one(self) -> Node:
        return self.by_id[ONE]

    @property
    def two(self) -> Node:
        return self.by_id[TWO]

    async def elect(self, name: TopicPartition, leader: int) -> None:
        """Let a broker lead, with an empty log if it is new there; return when all know and it serves."""
        image = self.world.node.image
        state = image.state(name)
        replicas = sorted({*state.replicas, leader} - {-1})
        new = PartitionState(leader, state.leader_epoch + 1, replicas, [leader] if leader >= 0 else state.isr)
        key = partition_key(image.get(name.topic).topic_id, name.partition)
        result = await self.world.store.txn(success=[Put(key, msgspec.json.encode(new, order="sorted"))])
        for each in (image, self.one.image, self.two.image):
            await each.until(result.revision)
        await asyncio.sleep(1)

    async def start(self) -> None:
        for node in self.by_id.values():
            await node.start()
        for name, leader in ((ORDERS[0], ONE), (ORDERS[1], TWO), (OFFSETS_0, ONE), (TRANSACTIONS_0, TWO)):
            await self.elect(name, leader)

    async def init(self, name: str = "pay", *, timeout_ms: int = 600_000) -> ProducerIdentity:
        return await self.two.transactions.init(name, timeout_ms)


def in_nodes(scenario: Callable[[Nodes], Awaitable[None]]) -> None:
    async def live() -> None:
        world = World(internal_partitions=1, quick_disk=True)
        await world.start()
        await world.create_topic("orders", 2)
        nodes = Nodes(world)
        await nodes.start()
        await scenario(nodes)
        for node in nodes.by_id.values():
            await node.close()
        await world.close()

    async def limited() -> None:
        async with asyncio.timeout(3_600):  # in virtual time
            await live()

    run(limited())


def a_batch(producer: ProducerIdentity, sequence: int = 0, value: bytes = b"x") -> bytes:
    batch = encode_batch(
        [(None, value)],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    return bytes(batch)


async def _at_once(_: Message) -> None:
    pass


def _failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} failed") from error


def _fsync_failed(error: BaseException) -> None:
    raise AssertionError from error
