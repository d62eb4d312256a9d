"""A broker without sockets, on a disk that loses power, in a world where requests come late, twice or never.

Everything is the shipped code but the host: the disk is `SimulatedDisk`, time is the virtual loop's, and what waits for
the disk waits a random while. A seed decides all of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from flymq.broker.coordinators.internal_topics import OFFSETS, TRANSACTIONS, InternalTopic
from tests.simulation.virtual_time import LoopClock

from flymq.broker.admin import Admin, TopicDefaults
from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replicas import Topics
from flymq.cluster.catalog import Catalog
from flymq.coordination.group import GroupLimits
from flymq.coordination.transactions import TransactionLimits
from flymq.host.simulated_disk import PowerCut, SimulatedDisk
from flymq.host.tasks import Tasks
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.model.delivery import Isolation
from flymq.model.errors import ConnectionLost, FlyMQError, PartitionOffline
from flymq.model.names import TopicPartition
from flymq.record.reading import end_offset, parse_records
from flymq.record.record import Record
from flymq.storage.data_directory import DataDirectory
from flymq.storage.flusher import Flusher

T = TypeVar("T")

DATA_DIR = Path("/data")
LIMITS = GroupLimits(consumer_session_timeout_ms=2_000)


class SlowThreads:
    """Runs the work after a random while."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def run(self, work: Callable[[], T]) -> T:
        mean_s = 0.002 if self._chance.random() < 0.9 else 0.2
        await asyncio.sleep(self._chance.expovariate(1 / mean_s))
        return work()

    def close(self) -> None:
        pass


class Disk(SimulatedDisk):
    """Tells when the power goes in the middle of an operation."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.is_cut = asyncio.Event()

    def operate(self, operation: str, path: Path) -> None:
        try:
            super().operate(operation, path)
        except PowerCut:
            self.is_cut.set()
            raise

    def refuse(self, path: Path) -> None:
        try:
            super().refuse(path)
        except PowerCut:
            self.is_cut.set()
            raise

    def cut_power(self) -> None:
        super().cut_power()
        self.is_cut.clear()


class Node:
    """One life of the broker, from its start to its stop or crash."""

    def __init__(self, disk: Disk, store: SqliteMetadataStore, chance: random.Random) -> None:
        self.clock = LoopClock(asyncio.get_running_loop())
        self.failures: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(self._task_failed)
        self.died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.directory = DataDirectory(disk, DATA_DIR)
        self.flusher = Flusher(SlowThreads(chance), self.tasks, lambda error: None)
        self.topics = Topics(self.directory, self.flusher, self.clock)
        self.catalog = Catalog(store)
        self.admin = Admin(
            0, self.topics, self.catalog, self.directory, SlowThreads(chance), chance, TopicDefaults(partitions=1)
        )
        self._chance = chance
        self._closing: list[Callable[[], None]] = []

    def _task_failed(self, name: str, error: BaseException) -> None:
        if not isinstance(error, PowerCut):
            self.failures.append((name, error))

    async def start(self, internal_partitions: int) -> None:
        was_clean = not await self.admin.open_topics()

        async def internal(name: str) -> InternalTopic:
            return await InternalTopic.open(self.admin, name, self.clock, partitions=internal_partitions)

        self.groups = Groups(await internal(OFFSETS), self.topics, self.clock, self._chance, LIMITS)
        self._closing.append(self.groups.close)
        self.groups.open()
        self.transactions = Transactions(
            await internal(TRANSACTIONS),
            self.topics,
            self.groups,
            ProducerIds(self.catalog),
            self.clock,
            self.tasks,
            TransactionLimits(),
        )
        self._closing.append(self.transactions.close)
        await self.transactions.open(was_clean=was_clean)

    def kill(self) -> None:
        """Stop in the middle of everything."""
        for close in self._closing:
            close()
        if not self.died.done():
            self.died.set_result(None)

    def cut_off(self) -> None:
        """Let nothing that still runs reach the disk: it has a new owner."""
        for partition in self.topics.partitions():
            partition.log.failure = PartitionOffline("this broker is dead")

    async def stop(self) -> None:
        """Stop in good order."""
        self.kill()
        await self.tasks.close()
        self.topics.close()
        self.directory.close()

    def partition(self, topic: str, number: int = 0) -> Partition:
        return self.topics.partition(TopicPartition(topic, number))


class World:
    """The broker through all its lives, and the network that leads to it."""

    def __init__(self, seed: int, *, faults: bool = True, internal_partitions: int = 2) -> None:
        self.chance = random.Random(seed)
        self.disk = Disk(seed)
        self.store = SqliteMetadataStore.open(None)
        self.faults = faults
        self.node: Node | None = None
        self._internal_partitions = internal_partitions
        self._late: set[asyncio.Task[None]] = set()

    async def start(self) -> Node:
        node = Node(self.disk, self.store, self.chance)
        await node.start(self._internal_partitions)
        self.node = node
        return node

    async def start_and_crash(self, after_s: float) -> None:
        """Lose power again while the broker recovers."""
        node = Node(self.disk, self.store, self.chance)
        starting = asyncio.ensure_future(node.start(self._internal_partitions))
        await asyncio.wait({starting}, timeout=after_s)
        node.kill()
        node.cut_off()
        self.disk.cut_power()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await node.tasks.close()

    async def create_topic(self, name: str, partitions: int) -> None:
        assert self.node is not None
        await self.node.admin.create(name, partitions=partitions)

    async def crash(self) -> None:
        """Lose power: what was not on the disk may be gone."""
        node, self.node = self.node, None
        if node is not None:
            node.kill()
            node.cut_off()
            self.disk.cut_power()
            await node.tasks.close()
            assert not node.failures, node.failures

    async def disturb(self, work: asyncio.Future[Any]) -> None:
        """Crash and restart the broker again and again until `work` is done."""
        chance = self.chance
        while not work.done():
            how = chance.random()
            if how < 0.6:  # the power goes in the middle of something the broker writes
                self.disk.bytes_until_cut = int(chance.expovariate(1 / 2_000))
                await self._first({work}, self.disk.is_cut)
            else:
                await asyncio.wait({work}, timeout=chance.expovariate(1 / 1.0))
            if work.done():
                break
            if how > 0.9:
                await self.restart()
                continue
            await self.crash()
            while chance.random() < 0.2:
                await self.start_and_crash(chance.expovariate(1 / 0.05))
            await self.start()
        self.disk.bytes_until_cut = None
        if self.disk.is_cut.is_set():
            await self.crash()
            await self.start()

    async def _first(self, work: set[asyncio.Future[Any]], event: asyncio.Event) -> None:
        waiting = asyncio.ensure_future(event.wait())
        await asyncio.wait({*work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def restart(self) -> Node:
        """Stop in good order and start again."""
        node, self.node = self.node, None
        assert node is not None
        await node.stop()
        assert not node.failures, node.failures
        return await self.start()

    async def close(self) -> None:
        for task in list(self._late):
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        if self.node is not None:
            await self.node.stop()
            assert not self.node.failures, self.node.failures
        await self.store.close()

    # --- network

    async def call(self, ask: Callable[[Node], Any]) -> Any:
        """Ask the broker something; it may not hear, hear late, or not be heard."""
        chance = self.chance
        if self.faults and chance.random() < 0.02:
            self._send_late(ask)
            raise ConnectionLost("the request is on its way still")
        await self._travel()
        node = self.node
        if node is None or (self.faults and chance.random() < 0.02):
            await asyncio.sleep(0.05)
            raise ConnectionLost("the request was lost")
        result = await self._ask(node, ask)
        await self._travel()
        if self.node is not node or (self.faults and chance.random() < 0.02):
            raise ConnectionLost("the answer was lost")
        return result

    async def _ask(self, node: Node, ask: Callable[[Node], Any]) -> Any:
        try:
            result = ask(node)
            if not (asyncio.iscoroutine(result) or isinstance(result, asyncio.Future)):
                return result
            answer = asyncio.ensure_future(result)
            try:
                await asyncio.wait({answer, node.died}, return_when=asyncio.FIRST_COMPLETED)
                if answer.done() and not answer.cancelled():
                    return answer.result()
            finally:
                answer.cancel()
        except PowerCut:
            await node.died
        raise ConnectionLost("the broker died")

    async def _travel(self) -> None:
        await asyncio.sleep(self.chance.expovariate(1 / 0.002))

    def _send_late(self, ask: Callable[[Node], Any]) -> None:
        """Deliver a request that its sender has given up."""

        async def deliver() -> None:
            await asyncio.sleep(self.chance.uniform(0.01, 5))
            node = self.node
            if node is not None:
                with suppress(FlyMQError):
                    await self._ask(node, ask)

        task = asyncio.get_running_loop().create_task(deliver())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    # --- what a reader sees

    def read(self, topic: str, number: int, isolation: Isolation = Isolation.READ_COMMITTED) -> list[Record]:
        """Return every record that a reader may see."""
        assert self.node is not None
        partition = self.node.partition(topic, number)
        records: list[Record] = []
        offset = partition.log.start_offset
        while (read := partition.read(offset, bytes_max=1 << 20, isolation=isolation)).slice is not None:
            run = read.slice.read()
            records += parse_records(run, start_offset=offset, aborted=read.aborted)
            following = end_offset(run)
            assert following is not None
            offset = following
        return records
