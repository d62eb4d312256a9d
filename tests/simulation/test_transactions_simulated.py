"""Transactions under power cuts, a slow disk, and a network that loses connections: all or nothing, always."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.simulation.producers import check_history, run_producer
from tests.simulation.world import World

from flymq.host.virtual_time import run
from flymq.model.names import TopicPartition

SEEDS = int(os.environ.get("FLYMQ_SIMULATION_SEEDS", "25"))
PARTITIONS = [TopicPartition("t", number) for number in range(3)]


async def transactions_survive(seed: int, *, fills_disk: bool = False) -> str:
    """Return the history of the world."""
    world = World(seed, fills_disk=fills_disk)
    chance = world.chance
    await world.start()
    await world.client("admin").create_topic("t", len(PARTITIONS))
    names = ["a", "b", "c", "a"] if chance.random() < 0.3 else ["a", "b", "c"]  # two of one name fence each other
    everybody = asyncio.gather(
        *(run_producer(world, name, number, PARTITIONS, chance.randint(3, 6)) for number, name in enumerate(names))
    )
    await world.disturb(everybody)
    history = [tried for tries in everybody.result() for tried in tries]
    await asyncio.sleep(10)  # what was left open is given up meanwhile
    await check_history(world, history, PARTITIONS)
    await world.crash()
    await check_history(world, history, PARTITIONS)
    await world.close()
    return world.history


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_transaction_is_wholly_there_or_not_at_all(seed: int) -> None:
    run(transactions_survive(seed))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_transaction_is_whole_though_the_disk_was_full_now_and_then(seed: int) -> None:
    run(transactions_survive(1000 + seed, fills_disk=True))
