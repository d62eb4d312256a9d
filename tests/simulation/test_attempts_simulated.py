"""A Spark query whose tasks fail, whose driver repeats itself and whose broker crashes: each batch counts once."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from itertools import count

import pytest
from tests.simulation.producers import MUST_BEGIN_ANEW, TRANSACTION_TIMEOUT_MS
from tests.simulation.world import Clients, NewWorld, World, patiently

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.producer import AsyncProducer
from flymq.client.aio.transaction import AsyncTransaction
from flymq.client.settings import ProducerConfig
from flymq.host.virtual_time import run
from flymq.model.coordinators import CoordinatorKind
from flymq.model.delivery import Acks
from flymq.wire.native.messages.session import Done
from flymq.wire.native.messages.transactions import AttemptToCommit, CommitAttempts

SEEDS = int(os.environ.get("FLYMQ_SIMULATION_SEEDS", "20"))
BATCHES = 5
TASKS = 2


class Query:
    """Writes batches as Spark does: again from the start when one fails, some attempts for nothing."""

    def __init__(self, world: Clients) -> None:
        self._world = world
        self._driver = world.cluster("driver")
        self._executors = [world.cluster(f"executor-{task}") for task in range(TASKS)]
        self._attempts = count()

    async def run(self) -> None:
        for batch in range(BATCHES):
            await self._write(batch)
            while self._world.chance.random() < 0.3:  # the driver does not know that it is done, and repeats it
                await self._write(batch)

    async def _write(self, batch: int) -> None:
        while True:
            try:
                listed = []
                for task, executor in enumerate(self._executors):
                    if self._world.chance.random() < 0.2:  # this one fails after it has written
                        await self._attempt(executor, batch, task)
                    listed.append(await self._attempt(executor, batch, task))
                request = CommitAttempts(query="query", batch=batch, attempts=listed)
                await patiently(self._driver.coordinators.ask, CoordinatorKind.TRANSACTION, "query", request, Done)
                return
            except MUST_BEGIN_ANEW:
                continue

    async def _attempt(self, executor: Cluster, batch: int, task: int) -> AttemptToCommit:
        chance = self._world.chance
        name = f"query:{batch}:{task}-{next(self._attempts)}"
        config = ProducerConfig(acks=chance.choice([Acks.ALL, Acks.LEADER]))
        producer = AsyncProducer(executor, config, transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        try:
            transaction = AsyncTransaction(executor, producer, on_end=lambda _: None)
            await patiently(transaction.begin)
            await producer.produce("t", f"{batch}/{task}".encode(), partition=chance.randrange(3))
            identity = producer.sender.identity()
            return AttemptToCommit(name, identity.producer_id, identity.producer_epoch)
        finally:
            await producer.close()


async def query_survives(seed: int, new_world: NewWorld = World) -> str:
    world = new_world(seed)
    await world.start()
    await world.client("admin").create_topic("t", 3)
    query = asyncio.ensure_future(Query(world).run())
    await world.disturb(query)
    await asyncio.sleep(world.settle_s)
    auditor = world.client("auditor")
    written = Counter(value for values in (await world.read(auditor, "t")).values() for value in values)
    assert written == Counter(f"{batch}/{task}".encode() for batch in range(BATCHES) for task in range(TASKS))
    await world.check_no_transaction_is_open("t", 3)
    await world.close()
    return world.history


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_batch_of_a_query_is_written_exactly_once(seed: int) -> None:
    run(query_survives(seed))
