"""Transactions under power cuts, a slow disk, and a network that loses connections: all or nothing, always."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial

import pytest
from tests.simulation.kafka_producers import KafkaProducer
from tests.simulation.producers import check_history, run_producer
from tests.simulation.world import NewWorld, World

from flymq.coordination import transactions as rules
from flymq.coordination.request_order import RequestOrder
from flymq.host.virtual_time import run
from flymq.model.names import TopicPartition

SEEDS = int(os.environ.get("FLYMQ_SIMULATION_SEEDS", "25"))
PARTITIONS = [TopicPartition("t", number) for number in range(3)]


async def transactions_survive(seed: int, new_world: NewWorld = World) -> str:
    """Return the history of the world."""
    world = new_world(seed)
    chance = world.chance
    await world.start()
    await world.client("admin").create_topic("t", len(PARTITIONS))
    names = ["a", "b", "c", "a"] if chance.random() < 0.3 else ["a", "b", "c"]  # two of one name fence each other
    everybody = asyncio.gather(
        *(run_producer(world, name, number, PARTITIONS, chance.randint(3, 6)) for number, name in enumerate(names))
    )
    await world.disturb(everybody)
    history = [tried for tries in everybody.result() for tried in tries]
    await asyncio.sleep(world.settle_s)  # what was left open is given up meanwhile
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
    run(transactions_survive(1000 + seed, partial(World, fills_disk=True)))


async def kafka_transactions_survive(seed: int, *, is_disturbed: bool = True) -> None:
    """Producers of both kinds repeat requests, and the first copies arrive late."""
    world = World(seed)
    await world.start()
    await world.client("admin").create_topic("t", len(PARTITIONS))
    producers = [KafkaProducer(world, f"k{number}", has_new_epochs=number % 2 == 0) for number in range(4)]
    everybody = asyncio.gather(*(producer.run(PARTITIONS, world.chance.randint(4, 8)) for producer in producers))
    if is_disturbed:
        await world.disturb(everybody)
    history = [tried for tries in await everybody for tried in tries]
    await asyncio.sleep(world.settle_s)  # what late requests may have begun is given up meanwhile
    try:
        await check_history(world, history, PARTITIONS)
    finally:
        await world.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_late_request_of_a_kafka_client_affects_another_transaction(seed: int) -> None:
    run(kafka_transactions_survive(seed))


def without_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RequestOrder, "check", lambda *_: None)


def without_epochs(patch: pytest.MonkeyPatch) -> None:
    """Let every producer keep its epoch."""
    patch.setattr(rules, "_succeed", lambda producer, _: producer)
    patch.setattr(RequestOrder, "check", lambda *_: None)


@pytest.mark.parametrize("remove", [without_order, without_epochs])
def test_the_simulation_finds_what_a_late_request_does_when_its_guard_is_missing(
    monkeypatch: pytest.MonkeyPatch, remove: Callable[[pytest.MonkeyPatch], None]
) -> None:
    remove(monkeypatch)
    with pytest.raises(AssertionError, match=r"is there|is gone|is half there"):
        for seed in range(30):
            run(kafka_transactions_survive(seed, is_disturbed=False))
