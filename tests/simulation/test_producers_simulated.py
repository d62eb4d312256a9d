"""Producers without transactions, and topics that are created meanwhile: what was acknowledged is there, once, in
order."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any, cast

import pytest
from tests.simulation.sent_records import PARTITIONS, check_seen, produce
from tests.simulation.world import World, patiently

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.host.virtual_time import run
from flymq.model.errors import TopicExists
from flymq.wire.native.opcodes import Opcode

SEEDS = int(os.environ.get("FLYMQ_SIMULATION_SEEDS", "20"))


async def create_topics(world: World, client: AsyncFlyMQClient) -> dict[str, int]:
    """Create a topic now and then; return those that are there for sure."""
    created = {}
    for number in range(6):
        partitions = world.chance.randint(1, 3)
        with suppress(TopicExists):  # the answer to the first try was lost
            await patiently(client.create_topic, f"other-{number}", partitions)
        created[f"other-{number}"] = partitions
        await asyncio.sleep(world.chance.expovariate(1 / 0.5))
    return created


async def producers_survive(seed: int, *, fills_disk: bool = False) -> str:
    world = World(seed, fills_disk=fills_disk)
    await world.start()
    admin = world.client("admin")
    await admin.create_topic("t", PARTITIONS)
    names = ["a", "b", "c"]
    clients = [world.client(name) for name in names]
    for client in clients:
        await patiently(client.connect)
    everybody = asyncio.gather(
        create_topics(world, admin),
        *(produce(world, client, name, records=40, pause_s=0.2) for client, name in zip(clients, names, strict=True)),
    )
    await world.disturb(everybody)
    await world.crash()
    created, *acknowledged = cast("list[dict[Any, Any]]", everybody.result())
    auditor = world.client("auditor")
    seen = await world.read(auditor, "t")
    for name, partition_count in created.items():
        described = await patiently(auditor.admin.describe_topic, name)
        assert len(described.partitions) == partition_count
    check_seen(seen, names, acknowledged)
    await world.close()
    return world.history


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_is_there_once_and_in_order(seed: int) -> None:
    run(producers_survive(seed))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_is_there_though_the_disk_was_full_now_and_then(seed: int) -> None:
    run(producers_survive(1000 + seed, fills_disk=True))


async def producer_is_cut_off(seed: int) -> None:
    world = World(seed)
    await world.start()
    client = world.client("a", acks="all")
    await client.create_topic("t", PARTITIONS)
    resets: list[str] = []

    def look(source: str, target: str, data: bytes) -> None:
        if source == "a" and len(data) > 2 and data[2] == Opcode.PRODUCE_BATCH and len(resets) < 3:
            resets.append(source)
            world.network.reset("a")  # the request has arrived, and waits for the disk

    world.network.on_delivery = look
    await client.produce_batch("t", [(b"%d" % number, b"") for number in range(10)])
    assert len(resets) == 3
    assert sum(map(len, (await world.read(client, "t")).values())) == 10
    await world.close()


@pytest.mark.parametrize("seed", range(5))
def test_a_producer_that_is_cut_off_while_its_records_wait_for_the_disk_writes_them_once(seed: int) -> None:
    run(producer_is_cut_off(seed))
