"""A single broker is adopted by a cluster, however often the command is interrupted: nothing is lost, nothing forks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.cluster_world import SOCKET, STORE, ToTheStore
from tests.simulation.world import ADDRESS, BROKER, SETTINGS, Clients, patiently

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.cluster.catalog import ADOPTING_KEY
from flymq.host.simulated_host import MachineDied, SimulatedMachine
from flymq.host.virtual_time import run
from flymq.metadata.images import IMAGE_NAME
from flymq.metadata.served.server import MetadataServer
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import Delete, Put
from flymq.model.errors import (
    AdoptionUnfinished,
    ClusterNotEmpty,
    FlyMQError,
    ForeignDataDirectory,
    NotStoppedCleanly,
)
from flymq.server.adopt_broker import ASIDE_PREFIX, AdoptedBroker, adopt_broker
from flymq.server.assemble import Server, assemble
from flymq.server.repair_catalog import repair_catalog
from flymq.server.settings import load_config

DATA = Path("/data")
ALONE: dict[str, Any] = {}
BROKER_3 = {"broker.id": 3, "cluster.store": str(SOCKET)}


class AdoptionWorld(Clients):
    """A broker, and the metadata store of a cluster on another machine."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ADDRESS)
        self.machine = SimulatedMachine(BROKER, self.network, self.chance)
        self.machine.host = replace(self.machine.host, network=ToTheStore(self.network, BROKER))
        self._store_machine = SimulatedMachine(STORE, self.network, self.chance)
        self._server: Server | None = None

    async def open(self) -> None:
        """Serve the store, and run the broker alone for a while."""
        await self._store_machine.run(self._serve_store())
        await self.start(ALONE)
        client = self.client("founder")
        await client.create_topic("orders", partitions=4, settings={"retention.ms": 86_400_000})
        await self.produce(client, 20)
        consumer = client.consumer("orders", group="billing", auto_commit=False)
        async with consumer:
            read: list[bytes] = []
            while len(read) < 20:
                read += [record.value for record in await consumer.poll(timeout_ms=500)]
            await consumer.commit()
        client.abort()

    async def _serve_store(self) -> None:
        host = self._store_machine.host
        host.disk.make_directory(DATA)
        self.store = SqliteMetadataStore.open(host.disk, DATA / "metadata", threads=host.new_threads("metadata", 2))
        await MetadataServer.open(host, self.store, SOCKET)

    async def produce(self, client: AsyncFlyMQClient, count: int) -> None:
        for number in range(count):
            await client.produce("orders", b"%d" % number, key=str(number))
        await client.flush()

    def _config(self, settings: dict[str, Any]) -> Any:
        return load_config(environ={}, flags={**SETTINGS, **settings})

    async def start(self, settings: dict[str, Any]) -> None:
        if not self.machine.is_up:
            self.machine.start()
        server = assemble(self.machine.host, self._config(settings))
        try:
            await self.machine.run(server.start())
        except FlyMQError:
            self.machine.kill()
            raise
        self._server = server

    async def stop(self) -> None:
        assert self._server is not None
        await self.machine.run(self._server.stop())
        self.machine.kill()

    async def adopt(self, settings: dict[str, Any] = BROKER_3, *, dry_run: bool = False) -> AdoptedBroker:
        if not self.machine.is_up:
            self.machine.start()
        return await self.machine.run(adopt_broker(self.machine.host, self._config(settings), dry_run=dry_run))

    async def close(self) -> None:
        self.leave()
        await self.stop()
        self.check_errors()

    async def keys(self) -> set[str]:
        return {each.key for each in (await self.store.range("")).key_values}


async def check_all_is_there(world: AdoptionWorld) -> None:
    client = world.client("heir")
    topic = await patiently(client.admin.describe_topic, "orders")
    assert len(topic.partitions) == 4 and topic.overrides == ["retention.ms"]
    assert {(*part.replicas, *part.isr) for part in topic.partitions} == {(3, 3)}
    values = [value for found in (await world.read(client, "orders")).values() for value in found]
    assert sorted(values) == sorted(b"%d" % number for number in range(20))
    consumer = client.consumer("orders", group="billing")
    async with consumer:
        await client.produce("orders", b"new", key="new")
        await client.flush()
        records: list[Any] = []
        while not records:
            records += await consumer.poll(timeout_ms=500)
        assert [record.value for record in records] == [b"new"]
    async with client.transaction("payments") as transaction:  # a producer id that nobody has had
        await transaction.produce("orders", b"paid")


@pytest.mark.parametrize("seed", range(20))
def test_an_adoption_that_is_interrupted_at_any_point_can_be_repeated(seed: int) -> None:
    async def live() -> None:
        world = AdoptionWorld(seed)
        await world.open()
        await world.stop()
        interruptions = 0
        while True:
            adoption = asyncio.ensure_future(world.adopt())
            if interruptions < 8:
                await asyncio.wait([adoption], timeout=world.chance.uniform(0, 0.02))
                if not adoption.done():
                    (world.machine.kill if world.chance.random() < 0.5 else world.machine.lose_power)()
                    interruptions += 1
            try:
                await adoption
                break
            except MachineDied:
                pass
            if world.chance.random() < 0.3:  # somebody tries to start the broker meanwhile
                with suppress(AdoptionUnfinished, ForeignDataDirectory):
                    await world.start(BROKER_3)
                    await world.stop()
        assert ADOPTING_KEY not in await world.keys()
        await world.start(BROKER_3)
        await check_all_is_there(world)
        await world.close()

    run(live())


def test_what_the_broker_did_alone_between_two_attempts_is_adopted() -> None:
    async def live() -> None:
        world = AdoptionWorld(1)
        await world.open()
        await world.stop()
        adoption = asyncio.ensure_future(world.adopt())
        async for batch in world.store.watch(ADOPTING_KEY, from_revision=2):
            assert batch.events
            break
        world.machine.kill()
        with pytest.raises(MachineDied):
            await adoption
        await world.start(ALONE)
        client = world.client("late")
        await client.create_topic("late", partitions=1)
        await client.delete_topic("orders")
        client.abort()
        await world.stop()
        adopted = await world.adopt()
        assert {topic for topic in adopted.partitions if not topic.startswith("__")} == {"late"}
        assert not {key for key in await world.keys() if key == "t/orders"}
        await world.start(BROKER_3)
        await world.close()

    run(live())


def test_a_dry_run_changes_nothing_and_tells_what_would_be_adopted() -> None:
    async def live() -> None:
        world = AdoptionWorld(1)
        await world.open()
        await world.stop()
        before = {path: world.machine.disk.read(path) for path in world.machine.disk.paths() if path.name != "lock"}
        planned = await world.adopt(dry_run=True)
        assert await world.keys() == set()
        after = {path: world.machine.disk.read(path) for path in world.machine.disk.paths() if path.name != "lock"}
        assert after == before
        done = await world.adopt()
        assert done == planned
        assert done.partitions["orders"] == 4
        again = await world.adopt()
        assert (again.partitions, again.kept_aside) == ({}, [])
        await world.start(BROKER_3)
        await check_all_is_there(world)
        await world.close()

    run(live())


def test_an_adopted_broker_does_not_start_alone_and_is_not_repaired_to_be_alone() -> None:
    async def live() -> None:
        world = AdoptionWorld(1)
        await world.open()
        await world.stop()
        with pytest.raises(ForeignDataDirectory, match="the data directory of a single broker") as caught:
            await world.start(BROKER_3)
        assert "flymq cluster adopt" in str(caught.value.hint)
        adopted = await world.adopt()
        assert not world.machine.disk.exists(DATA / IMAGE_NAME)
        assert DATA / (ASIDE_PREFIX + IMAGE_NAME) in adopted.kept_aside
        for alone in (ALONE, {"broker.id": 3}):
            with pytest.raises(ForeignDataDirectory, match="belongs to broker 3 of the cluster") as caught:
                await world.start(alone)
            assert "--etcd" in str(caught.value.hint)
        world.machine.start()
        with pytest.raises(ForeignDataDirectory):
            await repair_catalog(world.machine.host, DATA)
        with pytest.raises(ForeignDataDirectory, match="belongs to broker 3"):
            await world.adopt({**BROKER_3, "broker.id": 4})
        await world.start(BROKER_3)
        await world.close()

    run(live())


def test_a_store_that_is_in_use_is_refused_and_left_alone() -> None:
    async def live() -> None:
        world = AdoptionWorld(1)
        await world.open()
        await world.stop()
        for key in ("cluster", "t/other", ADOPTING_KEY):
            await world.store.txn(success=[Put(key, b"other")])
            with pytest.raises(ClusterNotEmpty):
                await world.adopt()
            assert await world.keys() == {key}
            await world.store.txn(success=[Delete(key)])
        await world.start(ALONE)
        await world.close()

    run(live())


def test_a_broker_that_was_killed_is_not_adopted_before_it_has_recovered() -> None:
    async def live() -> None:
        world = AdoptionWorld(1)
        await world.open()
        world.machine.kill()
        with pytest.raises(NotStoppedCleanly):
            await world.adopt()
        assert await world.keys() == set()
        world.machine.kill()
        await world.start(ALONE)
        await world.stop()
        await world.adopt()
        await world.start(BROKER_3)
        await check_all_is_there(world)
        await world.close()

    run(live())
