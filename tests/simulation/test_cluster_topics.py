"""Topics that change while a broker of the cluster is starting."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.world import patiently

from flymq.host.virtual_time import run


async def a_topic_goes_while_a_broker_starts(seed: int) -> None:
    world = ClusterWorld(seed)
    await world.start()
    client = world.client("client", acks="all")
    for name in ("t", "u", "v"):
        await patiently(client.create_topic, name, 3, replication_factor=3)
        await patiently(client.produce, name, b"old")
    await world.until_in_sync()
    node = world.nodes[2]
    node.machine.kill()
    starting = asyncio.ensure_future(node.start())
    await asyncio.sleep(world.chance.uniform(0, 0.3))
    await patiently(client.delete_topic, "t")
    await patiently(client.create_topic, "t", 2, replication_factor=2)
    await patiently(client.produce, "t", b"new")
    await starting
    await patiently(client.delete_topic, "u")
    await patiently(client.create_topic, "u", 1, replication_factor=3)
    await world.until_in_sync()
    for name in ("t", "u", "v"):
        await world.check_replicas(name)
    await world.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_topic_that_is_deleted_and_created_again_while_a_broker_starts_is_the_new_one_there(seed: int) -> None:
    run(a_topic_goes_while_a_broker_starts(seed))
