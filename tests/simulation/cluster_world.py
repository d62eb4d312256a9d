"""Three brokers and a metadata store in one thread, and a world that is not kind to them.

Everything is the shipped code. The store is that of the supervisor, on a machine of its own, and reached over the
simulated network, so that a broker can be cut off from it. A seed decides everything.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.simulation.world import SETTINGS, Clients

from flymq.broker.partition_admin import PartitionAdmin
from flymq.broker.replicas.partition import Partition
from flymq.cluster.catalog import PartitionState
from flymq.cluster.image import Image
from flymq.coordination.groups import AnyGroup
from flymq.host.simulated_host import MachineDied, SimulatedMachine
from flymq.host.simulated_network import P, SimulatedInterface, SimulatedNetwork
from flymq.metadata.served.server import MetadataServer
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.model.errors import CoordinatorLoading, FlyMQError
from flymq.model.names import TopicPartition
from flymq.model.topic_config import TopicConfig
from flymq.server.assemble import Server, assemble
from flymq.server.settings import load_config

STORE = "store"
SOCKET = Path("/data/store")
BROKERS = (1, 2, 3)
EXPECTED = ("No space left", "is full", "bytes are free")


class ToTheStore(SimulatedInterface):
    """The network of a broker, whose local socket of the store is on another machine."""

    async def connect_local(self, new_protocol: Callable[[], P], path: Path) -> P:
        return await self._connect(new_protocol, STORE, str(path))


class Node:
    """One broker through all its lives."""

    def __init__(self, broker_id: int, network: SimulatedNetwork, chance: random.Random) -> None:
        self.name = f"broker-{broker_id}"
        self.machine = SimulatedMachine(self.name, network, chance)
        self.machine.host = replace(self.machine.host, network=ToTheStore(network, self.name))
        self.server: Server | None = None
        self._config = load_config(
            environ={},
            flags={
                **SETTINGS,
                "broker.id": broker_id,
                "listener.host": self.name,
                "cluster.store": str(SOCKET),
                "replication.lag_max_ms": 2_000,
                "cluster.session_timeout_ms": 4_000,
                "topics.default_replication_factor": 3,
            },
        )

    async def start(self) -> None:
        """Start it, again and again until it has joined."""
        while True:
            if not self.machine.is_up:
                self.machine.start()
            try:
                await self.machine.run(self._serve())
                return
            except MachineDied:
                continue
            except FlyMQError as error:
                assert error.retriable, error
                self.machine.kill()
                await asyncio.sleep(0.5)

    async def _serve(self) -> None:
        server = assemble(self.machine.host, self._config)
        await server.start()
        self.server = server

    async def stop(self) -> None:
        """Stop in good order."""
        server, self.server = self.server, None
        try:
            if server is not None:
                await self.machine.run(server.stop())
                self.machine.kill()  # nothing is left of it
        except MachineDied:
            pass


class ClusterWorld(Clients):
    """Three brokers, their clients, and the network between them."""

    settle_s = 70.0  # a restart aborts no transaction, as other brokers may coordinate it: its timeout does

    def __init__(
        self,
        seed: int,
        *,
        loses_power: str = "one",
        keeps_memory: bool = False,
        expected_errors: tuple[str, ...] = (),
    ) -> None:
        """`loses_power`: "one" at a time, and only when all replicas are in sync; or "any".

        With `keeps_memory` the same holds for processes that end.
        """
        addresses = ",".join(f"broker-{number}:9092" for number in BROKERS)
        super().__init__(seed, addresses, EXPECTED + expected_errors)
        self._loses_power = loses_power
        self._keeps_memory = keeps_memory
        self.store_machine = SimulatedMachine(STORE, self.network, self.chance)
        self.nodes = [Node(number, self.network, self.chance) for number in BROKERS]
        self._leaders: dict[tuple[UUID, int, int], int] = {}

    async def start(self) -> None:
        await self.store_machine.run(self._serve_store())
        await asyncio.gather(*(node.start() for node in self.nodes))
        await self.until_in_sync()

    async def _serve_store(self) -> None:
        host, path = self.store_machine.host, Path("/data/metadata")
        threads = host.new_threads("metadata", 2)
        host.disk.make_directory(path.parent)
        store = SqliteMetadataStore.open(host.disk, path, threads=threads)
        await MetadataServer.open(host, store, SOCKET)
        self._store = store
        self.image = Image(store, TopicConfig())
        await self.image.load()
        self.image.watchers.append(lambda change: self._check_leaders(change.name))
        self._following = asyncio.ensure_future(self.image.follow())

    def _check_leaders(self, name: str) -> None:
        """There is at most one leader in each leader epoch."""
        if (topic := self.image.find(name)) is None:
            return
        for number, state in enumerate(topic.partitions):
            if state.leader >= 0:
                known = self._leaders.setdefault((topic.topic_id, number, state.leader_epoch), state.leader)
                assert known == state.leader, f"{name}-{number} has two leaders in epoch {state.leader_epoch}"

    # --- what befalls them

    async def disturb(self, work: asyncio.Future[Any]) -> None:
        """Kill brokers, cut the network and so on, again and again until `work` is done; then mend everything."""
        while not work.done():
            befall: Callable[[asyncio.Future[Any]], Awaitable[None]] = self.chance.choices(
                [
                    self._kill,
                    self._kill_all,
                    self._cut_power,
                    self._restart,
                    self._pause,
                    self._cut_links,
                    self._slow_links,
                    self._reset_links,
                    self._fill_disk,
                    self._kill_store,
                    self._reassign,
                    self._wait,
                ],
                [20, 4, 15, 12, 12, 25, 6, 8, 8, 6, 8, 4],
            )[0]
            await befall(work)
        await self.mend()
        work.result()

    def _one(self) -> Node:
        return self.chance.choice(self.nodes)

    async def _kill(self, work: asyncio.Future[Any]) -> None:
        if await self._may_lose(work, memory=True):
            node = self._one()
            node.machine.kill()
            await self._wait(work)
            await node.start()

    async def _kill_all(self, work: asyncio.Future[Any]) -> None:
        if self._keeps_memory:
            return
        for node in self.nodes:
            node.machine.kill()
        await self._wait(work)
        await asyncio.gather(*(node.start() for node in self.nodes))

    async def _cut_power(self, work: asyncio.Future[Any]) -> None:
        if await self._may_lose(work):
            node = self._one()
            node.machine.lose_power()
            await self._wait(work)
            await node.start()
            await self._may_lose(work)

    async def _restart(self, work: asyncio.Future[Any]) -> None:
        if await self._may_lose(work, memory=True):
            node = self._one()
            await node.stop()
            await self._wait(work)
            await node.start()

    async def _may_lose(self, work: asyncio.Future[Any], *, memory: bool = False) -> bool:
        """Whether one may lose what is not on its disk, or its memory: perhaps only when all replicas are in sync."""
        if not self._keeps_memory and (memory or self._loses_power == "any"):
            return True
        while not self.is_in_sync() and not work.done():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        return self.is_in_sync()

    async def _pause(self, work: asyncio.Future[Any]) -> None:
        """Pause one for less or for more than its lease."""
        node = self._one()
        node.machine.pause()
        await asyncio.wait({work}, timeout=self.chance.choice([0.5, 3.0, 8.0]))
        node.machine.resume()

    async def _cut_links(self, work: asyncio.Future[Any]) -> None:
        """Cut one off from some of the others, from the store or from clients, in one direction or both."""
        node = self._one()
        others = [other.name for other in self.nodes if other is not node] + [STORE, *self._hosts]
        chosen = self.chance.sample(others, self.chance.randint(1, len(others)))
        ways = [way for other in chosen for way in ((node.name, other), (other, node.name))]
        if self.chance.random() < 0.4:
            ways = ways[:: self.chance.choice([1, 2])]
        for way in ways:
            self.network.cut(*way)
        await asyncio.wait({work}, timeout=self.chance.choice([0.5, 3.0, 10.0]))
        for way in ways:
            self.network.mend(*way)

    async def _slow_links(self, work: asyncio.Future[Any]) -> None:
        """Slow the ways between one and everybody else."""
        node, delay_s = self._one(), self.chance.uniform(0.01, 0.7)
        others = [other.name for other in self.nodes if other is not node] + [STORE, *self._hosts]
        for other in others:
            self.network.slow(node.name, other, delay_s=delay_s)
            self.network.slow(other, node.name, delay_s=delay_s)
        await asyncio.wait({work}, timeout=self.chance.choice([1.0, 5.0]))
        for other in others:
            self.network.slow(node.name, other, delay_s=0.001)
            self.network.slow(other, node.name, delay_s=0.001)

    async def _fill_disk(self, work: asyncio.Future[Any]) -> None:
        """Leave little room on the disk of one for a while, perhaps also while it starts."""
        node = self._one()
        node.machine.disk.bytes_free = int(self.chance.expovariate(1 / 5_000))
        if self.chance.random() < 0.3 and await self._may_lose(work, memory=True):
            node.machine.kill()
            starting = asyncio.ensure_future(node.start())
            await self._wait(work)
            node.machine.disk.bytes_free = None
            await starting
        else:
            await asyncio.wait({work}, timeout=self.chance.choice([1.0, 6.0]))
            node.machine.disk.bytes_free = None

    async def _kill_store(self, work: asyncio.Future[Any]) -> None:
        """Kill the process that has the metadata. The brokers live on; who leads, leads."""
        self.store_machine.kill()
        await asyncio.wait({work}, timeout=self.chance.choice([0.3, 2.0, 8.0]))
        self.store_machine.start()
        await self.store_machine.run(self._serve_store())

    async def _reassign(self, work: asyncio.Future[Any]) -> None:
        """Begin to move partitions to other brokers, or in another order."""
        topics = [topic for topic in self.image if not topic.is_internal]
        if not topics:
            return
        topic = self.chance.choice(topics)
        wanted: dict[TopicPartition, list[int] | None] = {}
        for number, state in enumerate(topic.partitions):
            count = len(state.target) if self.chance.random() < 0.8 else self.chance.randint(2, 3)
            wanted[TopicPartition(topic.name, number)] = self.chance.sample(BROKERS, count)
        admin = PartitionAdmin(self._store, self.image, 0)
        with suppress(FlyMQError):  # who is chosen may be dead
            await self.store_machine.run(admin.reassign(wanted))

    async def _reset_links(self, work: asyncio.Future[Any]) -> None:
        self.network.reset(self._one().name)
        await self._wait(work)

    async def _wait(self, work: asyncio.Future[Any]) -> None:
        await asyncio.wait({work}, timeout=self.chance.expovariate(1 / 1.5))

    # --- when it is over

    async def mend(self) -> None:
        for node in self.nodes:
            if not node.machine.is_up:
                await node.start()
        await self.until_in_sync()

    def is_in_sync(self) -> bool:
        """Whether all replicas of every partition are in sync; those of internal topics are three."""
        if self._following.done():
            self._following.result()  # raises what was wrong with a change
        return all(
            state.leader in state.isr
            and len(state.isr) == (len(BROKERS) if topic.is_internal else len(state.replicas))
            and not state.adding
            for topic in self.image
            for state in topic.partitions
        )

    async def until_in_sync(self) -> None:
        """Wait until every replica is in sync. In virtual time two minutes are long."""
        for _ in range(1_200):
            if self.is_in_sync():
                return
            await asyncio.sleep(0.1)
        states = {topic.name: topic.partitions for topic in self.image}
        raise AssertionError(f"replicas do not come into sync: {states}, {sorted(self.image.members.live)}")

    async def check_replicas(self, topic: str) -> None:
        """Every replica has the same bytes, and only replicas have any."""
        for _ in range(100):
            contents = [_contents(node, topic) for node in self.nodes]
            if all(self._is_same(number, state, contents) for number, state in self._states(topic)):
                return
            await asyncio.sleep(0.1)
        shown = [{name.partition: found[:2] for name, found in each.items()} for each in contents]
        raise AssertionError(f"replicas of {topic} differ: {shown}, {dict(self._states(topic))}")

    def _states(self, topic: str) -> list[tuple[TopicPartition, PartitionState]]:
        states = self.image.get(topic).partitions
        return [(TopicPartition(topic, number), state) for number, state in enumerate(states)]

    def _is_same(
        self, name: TopicPartition, state: PartitionState, contents: list[dict[TopicPartition, tuple[int, int, bytes]]]
    ) -> bool:
        found = [contents[broker - 1].get(name) for broker in state.replicas]
        others = [each for at, each in enumerate(contents, start=1) if at not in state.replicas]
        return found[0] is not None and found.count(found[0]) == len(found) and all(name not in each for each in others)

    def groups(self) -> list[AnyGroup]:
        found: list[AnyGroup] = []
        for node in self.nodes:
            if node.machine.is_up and node.server is not None:
                with suppress(CoordinatorLoading):
                    found += node.server.broker.groups.list()
        return found

    async def crash(self) -> None:
        """Kill all of them, and start again."""
        for node in self.nodes:
            node.machine.kill()
        await self.mend()

    async def close(self) -> None:
        self.leave()
        await asyncio.gather(*(node.stop() for node in self.nodes))
        self._following.cancel()
        self.check_errors()


def _contents(node: Node, topic: str) -> dict[TopicPartition, tuple[int, int, bytes]]:
    assert node.server is not None
    partitions = [each for each in node.server.broker.replicas if each.name.topic == topic]
    return {each.name: (each.log.start_offset, each.log.end_offset, _bytes_of(each)) for each in partitions}


def _bytes_of(partition: Partition) -> bytes:
    log, offset, found = partition.log, partition.log.start_offset, b""
    while offset < log.end_offset:
        run = log.read(offset, bytes_max=1 << 20)
        assert run is not None
        found += bytes(run.read())
        offset += run.offsets
    return found
