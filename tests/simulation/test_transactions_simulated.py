"""Transactions under power cuts, a slow disk, and requests that come late, twice or never: all or nothing, always."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.simulation.producers import Producer, check_history, run_producer
from tests.simulation.virtual_time import run
from tests.simulation.world import World

from flymq.model.names import TopicPartition

SEEDS = int(os.environ.get("FLYMQ_SIMULATION_SEEDS", "25"))
PARTITIONS = [TopicPartition("t", number) for number in range(3)]


async def transactions_survive(seed: int) -> None:
    world = World(seed)
    chance = world.chance
    await world.start()
    await world.create_topic("t", len(PARTITIONS))
    names = ["a", "b", "c", "a"] if chance.random() < 0.3 else ["a", "b", "c"]  # two of one name fence each other
    clients = [
        asyncio.ensure_future(run_producer(world, Producer(world, name, number), PARTITIONS, chance.randint(3, 6)))
        for number, name in enumerate(names)
    ]
    everybody = asyncio.gather(*clients)
    await world.disturb(everybody)
    history = [tried for tries in everybody.result() for tried in tries]
    world.faults = False
    await asyncio.sleep(10)  # what was left open is given up meanwhile
    check_history(world, history, PARTITIONS)
    await world.crash()
    await world.start()
    check_history(world, history, PARTITIONS)
    await world.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_transaction_is_wholly_there_or_not_at_all(seed: int) -> None:
    run(transactions_survive(seed))
