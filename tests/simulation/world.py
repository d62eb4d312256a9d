"""A whole broker in one thread, and a world that is not kind to it.

Everything is the shipped code, wired by `assemble()` as in production, and asked by the shipped SDK over the network.
Only the host is simulated: time is the loop's, the disk loses power at any byte, the network delays, cuts and loses
connections. A seed decides all of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.client.aio.cluster import Cluster
from flymq.client.aio.offsets import list_offsets
from flymq.client.metrics import Counters
from flymq.client.settings import ClientSettings, ConnectionConfig, parse_addresses, pick
from flymq.coordination.groups import AnyGroup
from flymq.host.host import Host
from flymq.host.simulated_disk import PowerCut
from flymq.host.simulated_host import MachineDied, SimulatedMachine
from flymq.host.simulated_network import SimulatedNetwork
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.server.assemble import Server, assemble
from flymq.server.settings import load_config
from flymq.wire.native.messages.records import AT_LATEST

T = TypeVar("T")
NewWorld = Callable[[int], Any]
"""Makes a world of a seed: of one broker, or of several."""

BROKER = "broker"
ADDRESS = f"{BROKER}:9092"
SETTINGS = {
    "broker.data_dir": "/data",
    "listener.host": BROKER,
    "listener.http_port": -1,
    "groups.internal_partitions": 2,
    "groups.consumer_session_timeout_ms": 2_000,
    "storage.checkpoint_interval_ms": 3_000,
    "storage.reserve_bytes": 10_000,
}
PATIENT: ClientSettings = {
    "connect_timeout_ms": 1_000,
    "request_timeout_ms": 2_000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 500,
}


class Clients:
    """Clients, the network to the brokers, and what the clients see."""

    settle_s = 10.0
    """After this time nothing of what clients have left behind is open."""

    def __init__(self, seed: int, address: str, expected_errors: tuple[str, ...] = ()) -> None:
        self.chance = random.Random(seed)
        self.network = SimulatedNetwork(self.chance)
        self.network.on_delivery = self._remember
        self._address = address
        self._history = hashlib.sha256()
        self._hosts: dict[str, Host] = {}
        self._clients: list[AsyncFlyMQClient | Cluster] = []
        self._errors = LoggedErrors(expected_errors)
        logging.getLogger("flymq").addHandler(self._errors)

    @property
    def history(self) -> str:
        """A digest of every byte that has arrived anywhere, and when."""
        return self._history.hexdigest()

    def _remember(self, source: str, target: str, data: bytes) -> None:
        now_s = asyncio.get_running_loop().time()
        self._history.update(f"{now_s} {source} {target} {len(data)} ".encode() + data)

    # --- clients

    def client(self, name: str, **settings: Any) -> AsyncFlyMQClient:
        """A client on a machine of its own, which nothing befalls."""
        client = AsyncFlyMQClient(self._address, on_host=self.host(name), **{**PATIENT, "client_id": name, **settings})
        self._clients.append(client)
        return client

    def cluster(self, name: str) -> Cluster:
        """What a client is made of, for those who speak to brokers without one, as Spark does."""
        config = pick(ConnectionConfig, {**PATIENT, "client_id": name}, addresses=parse_addresses(self._address))
        cluster = Cluster(config, Counters(name), self.host(name), expects_broker=True)
        self._clients.append(cluster)
        return cluster

    def host(self, name: str) -> Host:
        if name not in self._hosts:
            self._hosts[name] = SimulatedMachine(name, self.network, self.chance).host
        return self._hosts[name]

    # --- what can be seen

    async def read(self, client: AsyncFlyMQClient, topic: str) -> dict[TopicPartition, list[bytes]]:
        """Return every value that a reader of committed records sees, by partition."""
        ends = await patiently(client.admin.latest_offsets, topic)
        found: dict[TopicPartition, list[bytes]] = {name: [] for name in ends}
        consumer = client.consumer(topic, fetch_wait_ms=50)
        await patiently(consumer.start)
        while any(consumer.position(*name) < end for name, end in ends.items()):
            for record in await consumer.poll(timeout_ms=100):
                found[TopicPartition(record.topic, record.partition)].append(record.value)
        await consumer.close()
        return found

    async def check_no_transaction_is_open(self, topic: str, partitions: int) -> None:
        cluster = self.cluster("auditor")
        wanted = {TopicPartition(topic, number): AT_LATEST for number in range(partitions)}
        stable = await patiently(list_offsets, cluster, wanted, Isolation.READ_COMMITTED)
        written = await patiently(list_offsets, cluster, wanted, Isolation.READ_UNCOMMITTED)
        for name in wanted:
            assert stable[name].offset == written[name].offset, f"a transaction is left open in {name}"
        await cluster.close()

    def groups(self) -> list[AnyGroup]:
        """The groups as the brokers have them, to look at what no client is told."""
        raise NotImplementedError

    def leave(self) -> None:
        """Disconnect all clients."""
        for client in self._clients:
            client.abort()

    def check_errors(self) -> None:
        """Nothing may have gone wrong that nobody was told of."""
        logging.getLogger("flymq").removeHandler(self._errors)
        assert not self._errors.found, self._errors.found


class World(Clients):
    """The broker through all its lives, its clients, and the network between them."""

    def __init__(self, seed: int, *, fills_disk: bool = False) -> None:
        """`fills_disk`: the disk is full now and then."""
        super().__init__(seed, ADDRESS, ("No space left", "is full", "bytes are free") if fills_disk else ())
        self._fills_disk = fills_disk
        self.machine = SimulatedMachine(BROKER, self.network, self.chance)
        self.server: Server | None = None
        self._config = load_config(flags=SETTINGS)

    # --- the broker's lives

    async def start(self) -> Server:
        """Start the broker. Raises MachineDied if it does not come so far."""
        if not self.machine.is_up:
            self.machine.start()
        return await self.machine.run(self._serve())

    async def _serve(self) -> Server:
        server = assemble(self.machine.host, self._config)
        await server.start()
        self.server = server
        return server

    async def restart(self) -> None:
        """Stop in good order and start again."""
        assert self.server is not None
        try:
            await self.machine.run(self.server.stop())
            self.machine.kill()  # nothing is left of it
        except MachineDied:
            pass
        await self.start_patiently()

    async def start_patiently(self) -> None:
        """Start, and start again if the power goes meanwhile."""
        self.server = None
        while True:
            if self.chance.random() < 0.2:
                self.machine.disk.bytes_until_cut = None
            try:
                await self.start()
                return
            except MachineDied:
                continue

    async def crash(self) -> None:
        """Lose power, and start again."""
        self.machine.lose_power()
        await self.start_patiently()

    # --- what befalls it

    async def disturb(self, work: asyncio.Future[Any]) -> None:
        """Crash the broker, cut its network and so on, again and again until `work` is done."""
        while not work.done():
            befall = self.chance.choices(
                [self._cut_power_at_a_byte, self._cut_power, self._kill, self._restart, self._disturb_network],
                [40, 10, 15, 10, 25],
            )[0]
            if self._fills_disk and self.chance.random() < 0.5:
                befall = self._fill_disk
            await befall(work)
        self.machine.disk.bytes_until_cut = None
        if not self.machine.is_up:
            await self.start_patiently()
        work.result()

    async def _fill_disk(self, work: asyncio.Future[Any]) -> None:
        """Leave little room on the disk for a while, perhaps also while the broker starts."""
        self.machine.disk.bytes_free = int(self.chance.expovariate(1 / 5_000))
        befall = self.chance.choice([self._wait, self._kill, self._cut_power, self._restart])
        await befall(work)
        await self._wait(work)
        self.machine.disk.bytes_free = None

    async def _cut_power_at_a_byte(self, work: asyncio.Future[Any]) -> None:
        """Let the power go in the middle of something the broker writes, perhaps again while it recovers."""
        self.machine.disk.bytes_until_cut = int(self.chance.expovariate(1 / 5_000))
        await first(work, asyncio.ensure_future(self.machine.until_dead()))
        if work.done():
            return
        self.machine.start()
        if self.chance.random() < 0.3:
            self.machine.disk.bytes_until_cut = int(self.chance.expovariate(1 / 20_000))
        await self.start_patiently()

    async def _cut_power(self, work: asyncio.Future[Any]) -> None:
        await self._wait(work)
        await self.crash()

    async def _kill(self, work: asyncio.Future[Any]) -> None:
        await self._wait(work)
        self.machine.kill()
        await self.start_patiently()

    async def _restart(self, work: asyncio.Future[Any]) -> None:
        await self._wait(work)
        await self.restart()

    async def _disturb_network(self, work: asyncio.Future[Any]) -> None:
        """Lose connections, or cut or slow the ways to and from some clients for a while."""
        network, chance = self.network, self.chance
        for name in self._hosts:
            how = chance.random()
            ways = [(name, BROKER), (BROKER, name)]
            if how < 0.2:
                network.reset(name)
            elif how < 0.5:
                for way in chance.sample(ways, chance.randint(1, 2)):
                    network.cut(*way)
            elif how < 0.7:
                for way in ways:
                    network.slow(*way, delay_s=chance.uniform(0.01, 0.5))
        await self._wait(work)
        self.mend()

    def mend(self) -> None:
        for name in self._hosts:
            for way in ((name, BROKER), (BROKER, name)):
                self.network.slow(*way, delay_s=0.001)
                self.network.mend(*way)

    async def _wait(self, work: asyncio.Future[Any]) -> None:
        await asyncio.wait({work}, timeout=self.chance.expovariate(1 / 1.0))

    async def close(self) -> None:
        """Stop everything in good order; nothing may have gone wrong that nobody was told of."""
        self.leave()
        if self.machine.is_up and self.server is not None:
            await self.machine.run(self.server.stop())
        self.check_errors()

    def groups(self) -> list[AnyGroup]:
        return [] if self.server is None else self.server.broker.groups.list()


class LoggedErrors(logging.Handler):
    """What a broker or a client says went wrong inside it."""

    def __init__(self, expected: tuple[str, ...] = ()) -> None:
        super().__init__(logging.ERROR)
        self._expected = expected
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if any(text in record.getMessage() for text in self._expected):
            return
        if not (record.exc_info and isinstance(record.exc_info[1], PowerCut)):
            self.found.append(f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}")


async def first(*work: asyncio.Future[Any]) -> None:
    """Wait for one of them; the others than the first go on for nobody."""
    await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    for other in work[1:]:
        other.cancel()


async def patiently(attempt: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
    """Try until it is done, as long as trying again may help."""
    while True:
        try:
            return await attempt(*args, **options)
        except FlyMQError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(0.1)
