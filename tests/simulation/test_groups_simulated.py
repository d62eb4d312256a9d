"""A group that copies a topic exactly once, through power cuts, lost connections and members that come and go."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Collection

import pytest
from tests.simulation.workers import GROUP, ToldWorker, Worker
from tests.simulation.world import NewWorld, World, patiently

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.coordination.assignors import ASSIGNORS
from flymq.coordination.consumer_group import SERVER_ASSIGNORS
from flymq.host.virtual_time import run
from flymq.model.errors import FlyMQError, GroupNotFound
from flymq.model.names import TopicPartition

SEEDS = int(os.environ.get("FLYMQ_SIMULATION_SEEDS", "25"))
INPUT = {TopicPartition("in", number): [f"{number}/{n}".encode() for n in range(8)] for number in range(3)}


async def write_input(client: AsyncFlyMQClient) -> None:
    await client.create_topic("in", len(INPUT))
    await client.create_topic("out", 2)
    for partition, values in INPUT.items():
        await client.produce_batch("in", values, partition=partition.partition)


async def watch(client: AsyncFlyMQClient, all_read: asyncio.Event) -> None:
    """Ask now and then how far the group has come."""
    expected = {partition: len(values) for partition, values in INPUT.items()}
    while not all_read.is_set():
        await asyncio.sleep(0.5)
        try:
            described = await client.admin.describe_group(GROUP)
        except FlyMQError as error:
            assert error.retriable or isinstance(error, GroupNotFound), error
            continue
        if {TopicPartition(lag.topic, lag.partition): lag.offset for lag in described.positions} == expected:
            all_read.set()


async def groups_survive(
    seed: int, worker: type[Worker], assignors: Collection[str], new_world: NewWorld = World
) -> str:
    world = new_world(seed)
    chance = world.chance
    await world.start()
    admin = world.client("admin", acks="all")
    await write_input(admin)
    assignor = chance.choice(sorted(assignors))
    workers = [
        worker(world, number, assignor, instance=f"static-{number}" if chance.random() < 0.3 else "")
        for number in range(3)
    ]
    all_read = asyncio.Event()
    everybody = asyncio.gather(watch(admin, all_read), *(each.run(all_read.is_set) for each in workers))
    await world.disturb(everybody)
    await asyncio.sleep(world.settle_s)
    auditor = world.client("auditor")
    copied = Counter(value for values in (await world.read(auditor, "out")).values() for value in values)
    expected = Counter(value for values in INPUT.values() for value in values)
    assert copied == expected, f"missing {expected - copied}, too many {copied - expected}"
    await patiently(auditor.close)
    await world.close()
    return world.history


async def members_survive(seed: int, new_world: NewWorld = World) -> str:
    return await groups_survive(seed, Worker, ASSIGNORS, new_world)


async def told_members_survive(seed: int) -> str:
    return await groups_survive(seed, ToldWorker, SERVER_ASSIGNORS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_copies_every_record_exactly_once(seed: int) -> None:
    run(members_survive(seed))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_that_is_told_what_to_read_copies_every_record_exactly_once(seed: int) -> None:
    run(told_members_survive(seed))
