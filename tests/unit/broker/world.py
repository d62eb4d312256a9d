"""A whole broker on a simulated machine, in virtual time, whose parts a test can call without a network between."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import msgspec

from flymq.broker.broker import Broker
from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.replicas.partition import Partition, View
from flymq.broker.safety import wait_safe
from flymq.broker.service.accounts import Accounts
from flymq.broker.service.quota import ClientQuota
from flymq.cluster.catalog import Catalog, PartitionState, partition_key
from flymq.coordination.entries import ProducerIdentity
from flymq.coordination.transactions import Joining
from flymq.host.simulated_host import SimulatedMachine
from flymq.host.simulated_network import SimulatedNetwork
from flymq.host.tasks import InlineThreads, Tasks
from flymq.metadata.store import MetadataStore, Put
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import PartitionOffline
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.reading import end_offset, parse_records
from flymq.record.record import Record
from flymq.server.open_broker import Workplace, open_broker
from flymq.server.settings import load_config


class World:
    """The broker through all its lives."""

    def __init__(
        self,
        *,
        internal_partitions: int = 2,
        auto_create: bool = False,
        quick_disk: bool = False,
        quotas: tuple[int, int] = (0, 0),
    ) -> None:
        """`quick_disk`: a disk that needs no time. `quotas`: bytes a second that each client may produce and fetch."""
        chance = random.Random(0)
        self._is_disk_quick = quick_disk
        self._quotas = quotas
        self.machine = SimulatedMachine("broker", SimulatedNetwork(chance), chance)
        self.disk = self.machine.disk
        self._config = load_config(
            flags={
                "broker.data_dir": "/data",
                "listener.host": "broker",
                "listener.http_port": -1,
                "groups.internal_partitions": internal_partitions,
                "groups.consumer_session_timeout_ms": 2_000,
                "topics.auto_create": auto_create,
                "storage.reserve_bytes": 100_000,
            }
        )
        self._node: Broker | None = None
        self._undo = AsyncExitStack()

    @property
    def node(self) -> Broker:
        assert self._node is not None, "the broker runs"
        return self._node

    async def start(self) -> Broker:
        if not self.machine.is_up:
            self.machine.start()
        self._undo = AsyncExitStack()
        node, _ = await self.machine.run(open_broker(self._workplace()))
        self._node = node
        return node

    def _workplace(self) -> Workplace:
        host = self.machine.host
        return Workplace(
            host,
            self._config,
            Tasks(self._task_failed),
            InlineThreads() if self._is_disk_quick else host.new_threads("disk", 1),
            InlineThreads() if self._is_disk_quick else host.new_threads("flush", 1),
            Accounts(host.clock, *map(ClientQuota, self._quotas)),
            self._undo,
            lambda error: None,
        )

    def _task_failed(self, name: str, error: BaseException) -> None:
        raise AssertionError(f"{name} failed") from error

    # --- what the brokers agree on

    @property
    def broker_id(self) -> int:
        return self.node.replicas.broker_id

    @property
    def store(self) -> MetadataStore:
        """The metadata store, to change it as another broker would."""
        return self.node.image._store

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.store)

    def new_state(
        self, leader: int | None = None, *, epoch: int = 0, replicas: list[int] | None = None
    ) -> PartitionState:
        """Return the state of a partition, which this broker leads unless another one is named."""
        leader = self.broker_id if leader is None else leader
        replicas = [self.broker_id] if replicas is None else replicas
        return PartitionState(leader, epoch, replicas, replicas)

    async def elect(self, name: TopicPartition, leader: int) -> int:
        """Let a broker lead a partition from its next leader epoch on, which is returned."""
        epoch, revision = await self.write_election(name, leader)
        await self.node.image.until(revision)
        return epoch

    async def write_election(self, name: TopicPartition, leader: int) -> tuple[int, int]:
        """Elect a leader, and return its epoch and the revision of the change, which this broker may not know yet."""
        old = self.node.image.state(name)
        epoch = old.leader_epoch + 1
        new = PartitionState(leader, epoch, sorted({*old.replicas, leader}), [leader])
        key = partition_key(self.node.image.get(name.topic).topic_id, name.partition)
        result = await self.store.txn(success=[Put(key, msgspec.json.encode(new, order="sorted"))])
        return epoch, result.revision

    async def create_topic(self, name: str, partitions: int) -> None:
        await self.node.admin.create(name, partitions=partitions)

    async def crash(self) -> None:
        """Lose power: what was not on the disk may be gone."""
        node, self._node = self.node, None
        node.groups.close()
        node.transactions.close()
        self.machine.lose_power()
        for partition in node.replicas:  # what a test left running must not reach the disk of the next life
            partition.log.failure = PartitionOffline("this broker is dead")
        await asyncio.sleep(0)

    async def restart(self) -> Broker:
        """Shut down cleanly and start again."""
        await self.close()
        return await self.start()

    async def close(self) -> None:
        if self._node is not None:
            self._node = None
            await self.machine.run(self._undo.aclose())
            self.machine.kill()

    def partition(self, topic: str, number: int = 0) -> Partition:
        return self.node.replicas.get(TopicPartition(topic, number))

    def read(self, topic: str, number: int, isolation: Isolation = Isolation.READ_COMMITTED) -> list[Record]:
        """Return every record that a reader may see."""
        partition = self.partition(topic, number)
        records: list[Record] = []
        offset = partition.start_offset
        while (read := partition.read(offset, bytes_max=1 << 20, view=View.of(isolation))).slice is not None:
            run = read.slice.read()
            records += parse_records(run, start_offset=offset, aborted=read.aborted)
            following = end_offset(run)
            assert following is not None
            offset = following
        return records


class Producer:
    """A transactional producer."""

    def __init__(self, world: World, name: str, *, timeout_ms: int = 3_000) -> None:
        self.world = world
        self.name = name
        self.timeout_ms = timeout_ms
        self.identity: ProducerIdentity | None = None
        self.sequences: dict[TopicPartition, int] = {}

    @property
    def _transactions(self) -> Transactions:
        return self.world.node.transactions

    async def init(self) -> None:
        self.identity = await self._transactions.init(self.name, self.timeout_ms)
        self.sequences.clear()

    async def begin(self) -> None:
        assert self.identity is not None
        self._transactions.begin(self.name, self.identity)

    async def write(self, partition: TopicPartition, values: list[bytes], acks: Acks) -> None:
        assert self.identity is not None
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        batch = encode_batch(
            [(None, value) for value in values],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        replica = self.world.node.replicas.get(partition)
        await wait_safe(self._transactions.produce(self.name, replica, batch, acks, Joining.WRITTEN).safe)

    async def end(self, *, commit: bool) -> None:
        assert self.identity is not None
        self.identity = await self._transactions.end(self.name, self.identity, commit=commit)
        self.sequences.clear()
