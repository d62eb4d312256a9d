"""Producers without transactions: what they were told, and what readers must see of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from tests.simulation.world import Clients, patiently

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition

PARTITIONS = 3

Acknowledged = dict[bytes, TopicPartition]


async def produce(world: Clients, client: AsyncFlyMQClient, name: str, *, records: int, pause_s: float) -> Acknowledged:
    """Send records, many at once; return those that were acknowledged and where."""
    chance = world.chance
    producer = client.producer(acks="all", linger_ms=chance.choice([0, 5]))
    deliveries = []
    for number in range(records):
        value, partition = f"{name}/{number}".encode(), chance.randrange(PARTITIONS)
        deliveries.append((value, await patiently(producer.send, "t", value, partition=partition)))
        if chance.random() < 0.3:
            await asyncio.sleep(chance.expovariate(1 / pause_s))
    acknowledged = {}
    for value, delivery in deliveries:
        with suppress(FlyMQError):
            at = await delivery
            acknowledged[value] = TopicPartition(at.topic, at.partition)
    return acknowledged


def check_seen(
    seen: Mapping[TopicPartition, Sequence[bytes]], names: Iterable[str], acknowledged: Iterable[Acknowledged]
) -> None:
    """What was acknowledged is there; nothing is there twice, or out of the order in which its producer sent it."""
    for partition, values in seen.items():
        twice = [value for value, count in Counter(values).items() if count > 1]
        assert not twice, f"{twice} came twice to {partition}"
        for name in names:
            numbers = [int(value.split(b"/")[1]) for value in values if value.startswith(name.encode())]
            assert numbers == sorted(numbers), f"records of {name} are out of order in {partition}"
    for mine in acknowledged:
        for value, partition in mine.items():
            assert value in seen[partition], f"{value!r} was acknowledged and is gone from {partition}"
