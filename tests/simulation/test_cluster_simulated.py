"""Three brokers through kills, power failures, pauses and cuts: what all have acknowledged is there, once, in order."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from itertools import count
from typing import Any, cast

import pytest
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.sent_records import PARTITIONS, check_seen, produce
from tests.simulation.test_attempts_simulated import query_survives
from tests.simulation.test_groups_simulated import members_survive
from tests.simulation.test_transactions_simulated import transactions_survive
from tests.simulation.world import patiently

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.host.virtual_time import run
from flymq.model.errors import FlyMQError, TopicExists
from flymq.model.names import TopicPartition

SEEDS = max(4, int(os.environ.get("FLYMQ_SIMULATION_SEEDS", "20")) // 12)


async def watch(world: ClusterWorld, client: AsyncFlyMQClient) -> None:
    """Ask for the end of each partition again and again: it never goes back."""
    ends: dict[TopicPartition, int] = {}
    while True:
        for name, end in (await patiently(client.admin.latest_offsets, "t")).items():
            assert end >= ends.get(name, 0), f"the end of {name} went back from {ends[name]} to {end}"
            ends[name] = end
        await asyncio.sleep(world.chance.expovariate(1 / 0.1))


async def read_on(client: AsyncFlyMQClient, seen: dict[tuple[TopicPartition, int], bytes]) -> None:
    """Read what is there as soon as it is there."""
    consumer = client.consumer("t", fetch_wait_ms=50)
    await patiently(consumer.start)
    while True:
        for record in await patiently(consumer.poll, timeout_ms=1_000):
            name = TopicPartition(record.topic, record.partition)
            known = seen.setdefault((name, record.offset), record.value)
            assert known == record.value, f"{name} has {record.value!r} at {record.offset}, and had {known!r}"


async def change_topics(world: ClusterWorld, client: AsyncFlyMQClient) -> None:
    """Create topics, extend and delete them."""
    chance = world.chance
    for number in count():
        name, replicas = f"u{number % 3}", chance.randint(1, 3)
        with suppress(FlyMQError):  # too few brokers may be alive
            await patiently(client.create_topic, name, chance.randint(1, 3), replication_factor=replicas)
        await asyncio.sleep(chance.expovariate(1 / 1.0))
        with suppress(FlyMQError):
            await client.admin.add_partitions(name, 4)
        with suppress(FlyMQError):
            await client.produce(name, b"x")
        await asyncio.sleep(chance.expovariate(1 / 1.0))
        with suppress(FlyMQError):  # the answer of the metadata store may be lost
            await patiently(client.delete_topic, name)


async def acknowledged_records_survive(
    seed: int, *, persistence: str, loses_power: str, keeps_memory: bool = False
) -> str:
    world = ClusterWorld(seed, loses_power=loses_power, keeps_memory=keeps_memory)
    await world.start()
    admin = world.client("admin")
    settings = {"min.insync.replicas": 2, "persistence": persistence}
    with suppress(TopicExists):
        await patiently(admin.create_topic, "t", PARTITIONS, replication_factor=3, settings=settings)
    names = ["a", "b"]
    clients = [world.client(name) for name in names]
    for client in clients:
        await patiently(client.connect)
    read: dict[tuple[TopicPartition, int], bytes] = {}
    others = [
        asyncio.ensure_future(work)
        for work in (
            watch(world, world.client("watcher")),
            read_on(world.client("reader"), read),
            change_topics(world, world.client("other")),
        )
    ]
    everybody = asyncio.gather(
        *(produce(world, client, name, records=60, pause_s=0.5) for client, name in zip(clients, names, strict=True))
    )
    await world.disturb(everybody)
    for other in others:
        assert not other.done(), other.exception()
        other.cancel()
    acknowledged = cast("list[dict[Any, Any]]", everybody.result())
    await world.check_replicas("t")
    seen = await world.read(world.client("auditor"), "t")
    check_seen(seen, names, acknowledged)
    found = {(name, at): value for name, values in seen.items() for at, value in enumerate(values)}
    assert read.items() <= found.items(), f"what was read is gone: {read.items() - found.items()}"
    await world.close()
    return world.history


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_two_replicas_have_survives_the_power_failure_of_one(seed: int) -> None:
    run(acknowledged_records_survive(seed, persistence="disk", loses_power="one"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_synced_on_two_replicas_survives_any_power_failure(seed: int) -> None:
    run(acknowledged_records_survive(10_000 + seed, persistence="fsync", loses_power="any"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_transaction_across_brokers_is_wholly_there_or_not_at_all(seed: int) -> None:
    run(transactions_survive(seed, ClusterWorld))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_batch_of_a_query_is_written_to_the_cluster_exactly_once(seed: int) -> None:
    run(query_survives(seed, ClusterWorld))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_on_a_cluster_copies_every_record_exactly_once(seed: int) -> None:
    run(members_survive(seed, ClusterWorld))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_in_memory_survives_while_one_in_sync_replica_lives(seed: int) -> None:
    run(acknowledged_records_survive(20_000 + seed, persistence="memory", loses_power="one", keeps_memory=True))
