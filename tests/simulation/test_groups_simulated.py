"""A group that copies a topic exactly once, through power cuts, lost requests and members that come and go."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Collection

import pytest
from tests.simulation.virtual_time import run
from tests.simulation.workers import GROUP, ToldWorker, Worker
from tests.simulation.world import Node, World

from flymq.coordination.assignors import ASSIGNORS
from flymq.coordination.consumer_group import SERVER_ASSIGNORS
from flymq.model.delivery import Acks
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

SEEDS = int(os.environ.get("FLYMQ_SIMULATION_SEEDS", "25"))
INPUT = {TopicPartition("in", number): [f"{number}/{n}".encode() for n in range(8)] for number in range(3)}


async def write_input(node: Node) -> None:
    for partition, values in INPUT.items():
        batch = encode_batch([(None, value) for value in values])
        _, durable = node.topics.partition(partition).append(batch, Acks.ALL)
        if durable is not None:
            await durable


def is_all_read(world: World) -> bool:
    if world.node is None:
        return False
    committed = world.node.groups.committed(GROUP)
    return all(
        partition in committed and committed[partition].offset == len(values) for partition, values in INPUT.items()
    )


async def groups_survive(seed: int, worker: type[Worker], assignors: Collection[str]) -> None:
    world = World(seed)
    chance = world.chance
    node = await world.start()
    await world.create_topic("in", len(INPUT))
    await world.create_topic("out", 2)
    await write_input(node)
    assignor = chance.choice(sorted(assignors))
    workers = [
        worker(world, number, assignor, instance=f"static-{number}" if chance.random() < 0.3 else "")
        for number in range(3)
    ]
    everybody = asyncio.gather(*(each.run(lambda: is_all_read(world)) for each in workers))
    await world.disturb(everybody)
    await everybody
    world.faults = False
    await asyncio.sleep(10)
    copied = Counter(record.value for number in range(2) for record in world.read("out", number))
    expected: Counter[bytes | None] = Counter(value for values in INPUT.values() for value in values)
    assert copied == expected, f"missing {expected - copied}, too many {copied - expected}"
    await world.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_copies_every_record_exactly_once(seed: int) -> None:
    run(groups_survive(seed, Worker, ASSIGNORS))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_that_is_told_what_to_read_copies_every_record_exactly_once(seed: int) -> None:
    run(groups_survive(seed, ToldWorker, SERVER_ASSIGNORS))
