"""A Spark query whose tasks fail, whose driver repeats itself and whose broker crashes: each batch counts once."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from functools import partial

import pytest
from tests.simulation.producers import MUST_BEGIN_ANEW, Producer
from tests.simulation.virtual_time import run
from tests.simulation.world import Node, World

from flymq.coordination.attempts import Attempt
from flymq.coordination.entries import ProducerIdentity
from flymq.model.delivery import Acks
from flymq.model.errors import ConnectionLost, TransactionInProgress
from flymq.model.names import TopicPartition

SEEDS = int(os.environ.get("FLYMQ_SIMULATION_SEEDS", "20"))
BATCHES = 5
TASKS = 2


async def write_attempt(world: World, batch: int, task: int, number: int) -> Producer:
    producer = Producer(world, f"query:{batch}:{task}-{number}")
    await producer.init()
    await producer.begin()
    partition = TopicPartition("t", world.chance.randrange(3))
    await producer.write(partition, [f"{batch}/{task}".encode()], world.chance.choice([Acks.ALL, Acks.LEADER]))
    return producer


async def commit(attempt: Attempt, listed: dict[str, ProducerIdentity], node: Node) -> None:
    await node.transactions.commit_attempts(attempt, listed)


async def write_batch(world: World, batch: int, attempts: list[int]) -> None:
    """Write a batch as Spark does: again from the start when it fails, some attempts for nothing."""
    while True:
        listed: dict[str, ProducerIdentity] = {}
        try:
            for task in range(TASKS):
                if world.chance.random() < 0.2:  # this one fails after it has written
                    attempts[0] += 1
                    await write_attempt(world, batch, task, attempts[0])
                attempts[0] += 1
                done = await write_attempt(world, batch, task, attempts[0])
                assert done.identity is not None
                listed[done.name] = done.identity
            await Producer(world, "driver").retry(partial(commit, Attempt("query", batch), listed))
            return
        except MUST_BEGIN_ANEW:
            continue
        except (ConnectionLost, TransactionInProgress):
            await asyncio.sleep(0.1)


async def run_query(world: World) -> None:
    attempts = [0]
    for batch in range(BATCHES):
        await write_batch(world, batch, attempts)
        while world.chance.random() < 0.3:  # the driver does not know that the batch is done, and repeats it
            await write_batch(world, batch, attempts)


async def query_survives(seed: int) -> None:
    world = World(seed)
    await world.start()
    await world.create_topic("t", 3)
    query = asyncio.ensure_future(run_query(world))
    await world.disturb(query)
    await query
    world.faults = False
    await asyncio.sleep(10)
    written = Counter(record.value for number in range(3) for record in world.read("t", number))
    assert written == Counter(f"{batch}/{task}".encode() for batch in range(BATCHES) for task in range(TASKS))
    for number in range(3):
        assert world.node is not None
        partition = world.node.partition("t", number)
        assert partition.last_stable_offset == partition.high_watermark
    await world.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_batch_of_a_query_is_written_exactly_once(seed: int) -> None:
    run(query_survives(seed))
