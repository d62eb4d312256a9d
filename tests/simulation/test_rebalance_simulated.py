"""What a transaction may commit while its consumer's group is rebalancing, one race at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.simulation.world import BROKER, World

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.client.aio.consumer import AsyncConsumer
from flymq.host.virtual_time import run
from flymq.model.errors import RebalanceInProgress, StaleGeneration
from flymq.model.names import TopicPartition
from flymq.wire.native.opcodes import Opcode

ANSWER = 0x80  # set in the opcode of an answer
QUICK: dict[str, Any] = {
    "group": "g",
    "auto_commit": False,
    "session_timeout_ms": 20_000,
    "heartbeat_interval_ms": 500,
    "rebalance_timeout_ms": 10_000,
    "fetch_wait_ms": 100,
}


async def begin(world: World) -> tuple[AsyncFlyMQClient, AsyncConsumer]:
    """Return a client whose consumer is the only one of its group and has a record of each of two partitions."""
    await world.start()
    admin = world.client("admin", acks="all")
    await admin.create_topic("in", 2)
    await admin.create_topic("out", 1)
    for partition in range(2):
        await admin.produce_batch("in", [b"%d" % partition], partition=partition)
    client = world.client("first", acks="all")
    consumer = client.consumer("in", **QUICK)
    records = await consumer.poll(timeout_ms=5_000)
    while len(records) < 2:
        records += await consumer.poll(timeout_ms=5_000)
    return client, consumer


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # nobody tells when it changes
            await asyncio.sleep(0.01)


async def a_partition_is_lost() -> None:
    world = World(1)
    client, consumer = await begin(world)
    transaction = await client.begin_transaction("t")
    await transaction.produce("out", b"made of both records")
    other = world.client("second").consumer("in", **QUICK)
    await asyncio.wait_for(other.start(), 60)
    await until(lambda: len(consumer.assignment()) == len(other.assignment()) == 1)
    with pytest.raises(RebalanceInProgress):
        await transaction.commit_consumed(consumer)
    await transaction.abort()
    await consumer.seek_to_committed()
    again = await client.begin_transaction("t")
    records = await consumer.poll(timeout_ms=5_000)
    assert [TopicPartition(record.topic, record.partition) for record in records] == consumer.assignment()
    await again.commit_consumed(consumer)
    await again.commit()
    await world.close()


def test_what_was_made_of_records_of_a_lost_partition_is_not_committed() -> None:
    run(a_partition_is_lost())


async def an_assignment_is_not_known_yet(seed: int) -> None:
    """Another member joins, and the connection of the first breaks before a heartbeat could tell it so.

    It joins again with all it had. The new generation is complete, and the answer that tells it what is left to it is
    on its way.
    """
    world = World(seed)
    client, consumer = await begin(world)
    transaction = await client.begin_transaction("t")
    await transaction.produce("out", b"made of both records")
    joining, has_joined = asyncio.Event(), asyncio.Event()

    def look(source: str, target: str, data: bytes) -> None:
        opcode = data[2] if len(data) > 2 else 0
        if source == "second" and opcode == Opcode.SUBSCRIBE:
            joining.set()
        elif source == "first" and opcode == Opcode.HEARTBEAT and joining.is_set() and not has_joined.is_set():
            world.network.reset("first")
        elif target == "first" and opcode == Opcode.SUBSCRIBE | ANSWER:
            has_joined.set()
            world.network.cut(BROKER, "first")  # from now on

    world.network.on_delivery = look
    other = world.client("second").consumer("in", **QUICK)
    await other.start()
    await asyncio.wait_for(has_joined.wait(), 60)
    await asyncio.sleep(0.1)
    asyncio.get_running_loop().call_later(0.5, world.mend)
    with pytest.raises(StaleGeneration):
        await transaction.commit_consumed(consumer)
    await world.close()


@pytest.mark.parametrize("seed", range(5))
def test_a_member_commits_nothing_in_a_generation_whose_assignment_it_does_not_know(seed: int) -> None:
    run(an_assignment_is_not_known_yet(seed))
