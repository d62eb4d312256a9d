"""Three brokers, one of which has a disk that fails or is full."""

from __future__ import annotations

import asyncio
import errno

from tests.simulation.cluster_world import ClusterWorld, Node
from tests.simulation.world import patiently

from flymq.client.aio.client import AsyncFlyMQClient
from flymq.host.virtual_time import run


async def a_topic(world: ClusterWorld, client: AsyncFlyMQClient, partitions: int = 1) -> None:
    await world.start()
    settings = {"min.insync.replicas": 2}
    await patiently(client.create_topic, "t", partitions, replication_factor=3, settings=settings)
    await world.until_in_sync()


def leader(world: ClusterWorld) -> Node:
    return world.nodes[world.image.get("t").partitions[0].leader - 1]


async def a_leader_fails() -> None:
    world = ClusterWorld(1, expected_errors=("t-0 is offline", "t-0 cannot be copied any more"))
    client = world.client("client", acks="all")
    await a_topic(world, client)
    producer = client.producer(acks="all")
    assert await producer.produce("t", b"0", partition=0) == 0
    before = leader(world)
    before.machine.disk.fail_next("append", ".log", errno.EIO)
    assert await producer.produce("t", b"1", partition=0) == 1
    assert leader(world) is not before
    assert len(world.image.get("t").partitions[0].isr) == 2
    await before.stop()
    await before.start()
    await world.until_in_sync()
    await world.check_replicas("t")
    await world.close()


def test_a_leader_whose_log_fails_is_replaced_and_is_in_sync_again_after_a_restart() -> None:
    run(a_leader_fails())


async def a_follower_fails() -> None:
    world = ClusterWorld(2, expected_errors=("t-0 is offline", "t-0 cannot be copied any more"))
    client = world.client("client", acks="all")
    await a_topic(world, client)
    follower = next(node for node in world.nodes if node is not leader(world))
    follower.machine.disk.fail_next("append", ".log", errno.EIO)
    assert await client.produce("t", b"0", partition=0) == 0
    while len(world.image.get("t").partitions[0].isr) > 2:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await follower.stop()
    await follower.start()
    await world.until_in_sync()
    await world.check_replicas("t")
    await world.close()


def test_a_follower_whose_log_fails_is_not_in_sync_until_it_is_restarted() -> None:
    run(a_follower_fails())


async def a_follower_is_full() -> None:
    world = ClusterWorld(3, expected_errors=("No space left", "is full"))
    client = world.client("client", acks="all")
    await a_topic(world, client)
    follower = next(node for node in world.nodes if node is not leader(world))
    follower.machine.disk.bytes_free = 10
    for number in range(10):
        assert await client.produce("t", bytes(1_000), partition=0) == number
    while len(world.image.get("t").partitions[0].isr) > 2:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    follower.machine.disk.bytes_free = None
    await world.until_in_sync()
    await world.check_replicas("t")
    await world.close()


def test_a_follower_whose_disk_was_full_is_in_sync_again_when_there_is_room() -> None:
    run(a_follower_is_full())
