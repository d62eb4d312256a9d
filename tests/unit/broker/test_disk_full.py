"""A whole broker on a disk that fills up: it refuses writes, serves reads, makes room, and goes on by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.broker.world import Producer, World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer
from flymq.broker.replicas.maintenance import Maintenance
from flymq.broker.safety import wait_safe
from flymq.coordination.entries import OffsetValue
from flymq.coordination.group import Join
from flymq.host.tasks import InlineThreads, run_steps_here
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import CoordinatorUnavailable, DiskFull, TooManyOpenFiles
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

Scenario = Callable[[World, Broker], Awaitable[None]]
ORDERS = TopicPartition("orders", 0)
RESERVE = 100_000


def in_world(scenario: Scenario) -> None:
    async def live() -> None:
        world = World()
        node = await world.start()
        await world.create_topic("orders", 1)
        await scenario(world, node)
        world.disk.bytes_free = None
        await world.close()

    run(live())


def produce(world: World, value: bytes = b"x", topic: str = "orders") -> int:
    return world.partition(topic).append(encode_batch([(None, value)]), Acks.LEADER).base_offset


def fill(world: World, topic: str = "orders") -> None:
    """Write until the disk is full."""
    world.disk.bytes_free = 5_000
    with pytest.raises(DiskFull):
        for _ in range(100):
            produce(world, b"x" * 100, topic)


async def until_room(world: World, node: Broker) -> None:
    for _ in range(10):
        await asyncio.sleep(1)
        if not node.headroom.is_disk_full:
            return
    pytest.fail("the disk has room, but the broker still refuses writes")


def test_reads_go_on_while_the_disk_is_full_and_writes_once_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World, node: Broker) -> None:
        caplog.clear()
        fill(world)
        written = len(world.read("orders", 0))
        assert written > 10
        for _ in range(50):
            with pytest.raises(DiskFull, match="is full") as refused:
                produce(world)
            assert refused.value.retriable
            await asyncio.sleep(1)
        assert len(world.read("orders", 0)) == written
        assert [problem[:8] for problem in node.headroom.problems] == ["The disk"]
        world.disk.bytes_free = 1 << 20
        await until_room(world, node)
        assert produce(world) == written
        assert node.headroom.problems == []
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(said) == 2, said
        assert "Writes are refused" in said[0] and "has room again" in said[1]

    in_world(scenario)


def test_space_is_kept_for_deleting_a_topic_on_a_full_disk() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("large", 1)
        for _ in range(40):
            produce(world, b"x" * 10_000, "large")
        fill(world)
        with pytest.raises(DiskFull):
            await world.create_topic("new", 1)
        world.disk.bytes_free = min(world.disk.bytes_free or 0, RESERVE)
        await node.admin.delete("large")
        await until_room(world, node)
        assert produce(world) > 0
        await world.create_topic("new", 1)

    in_world(scenario)


def test_records_can_be_deleted_and_retention_lowered_on_a_full_disk() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await node.admin.alter("orders", {"segment.bytes": 100_000})
        for _ in range(40):
            produce(world, b"x" * 10_000)
        fill(world)
        run_steps_here(world.partition("orders").delete_before(20))
        await until_room(world, node)
        world.disk.bytes_free = None
        for _ in range(40):
            produce(world, b"x" * 10_000)
        fill(world)
        await node.admin.alter("orders", {"retention.bytes": 100_000})
        partition = world.partition("orders")
        maintenance = Maintenance(node.replicas, node.flusher, InlineThreads(), node.clock)
        await maintenance.checkpoint(partition)
        await maintenance.retain(partition)
        await until_room(world, node)
        assert partition.log.size < 250_000
        assert produce(world) > 0

    in_world(scenario)


def test_a_broker_starts_on_a_full_disk_serves_reads_and_goes_on_when_there_is_room() -> None:
    async def scenario(world: World, node: Broker) -> None:
        producer = Producer(world, "t")
        await producer.init()
        await producer.begin()
        await producer.write(ORDERS, [b"open"], Acks.ALL)
        for _ in range(30):
            produce(world)
        await wait_safe(world.partition("orders").safe())
        world.disk.remove(Path("/data/reserve"))
        world.disk.sync_directory(Path("/data"))
        await world.crash()
        world.disk.bytes_free = 0
        node = await world.start()
        assert node.headroom.is_disk_full
        assert world.partition("orders").log.end_offset == 31
        assert world.read("orders", 0) == []  # the transaction is still open
        with pytest.raises(DiskFull):
            produce(world)
        world.disk.bytes_free = 1 << 20
        await until_room(world, node)
        assert len(world.read("orders", 0)) == 30
        assert world.partition("orders").leader_epoch == 1
        assert produce(world) == 32
        await world.restart()
        assert len(world.read("orders", 0)) == 31

    in_world(scenario)


def test_a_start_gives_the_reserve_back_when_the_disk_is_full() -> None:
    async def scenario(world: World, node: Broker) -> None:
        produce(world)
        await world.crash()
        world.disk.bytes_free = 0
        node = await world.start()
        assert node.headroom.is_disk_full
        await node.admin.delete("orders")

    in_world(scenario)


def test_offsets_can_be_committed_with_half_of_the_reserve_and_the_coordinator_goes_on_later() -> None:
    async def scenario(world: World, node: Broker) -> None:
        fill(world)

        async def commit(offset: int) -> None:
            _, safe = node.groups.commit("billing", Committer(), {ORDERS: OffsetValue(offset)})
            await wait_safe(safe)

        await commit(5)
        world.disk.bytes_free = RESERVE // 2 - 1
        await asyncio.sleep(1.5)
        with pytest.raises(CoordinatorUnavailable, match=r"__offsets.*is full"):
            await commit(6)
        assert node.groups.committed("billing")[ORDERS].offset == 5
        world.disk.bytes_free = 1 << 20
        await until_room(world, node)
        await commit(7)
        node = await world.restart()
        assert node.groups.committed("billing")[ORDERS].offset == 7

    in_world(scenario)


def test_a_member_that_could_not_join_on_a_full_disk_joins_when_there_is_room() -> None:
    async def scenario(world: World, node: Broker) -> None:
        fill(world)
        world.disk.bytes_free = 0
        await asyncio.sleep(1.5)
        join = Join((("range", b""),))
        with pytest.raises(CoordinatorUnavailable):
            await asyncio.wait_for(node.groups.join("billing", join), 60)
        world.disk.bytes_free = 1 << 20
        await until_room(world, node)
        assert (await asyncio.wait_for(node.groups.join("billing", join), 60)).generation >= 1

    in_world(scenario)


def test_a_transaction_ends_and_one_times_out_once_there_is_room() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("invoices", 1)
        ending, idle = Producer(world, "ending"), Producer(world, "idle", timeout_ms=2_000)
        for producer, topic in ((ending, ORDERS), (idle, TopicPartition("invoices", 0))):
            await producer.init()
            await producer.begin()
            await producer.write(topic, [b"x"], Acks.ALL)
        fill(world, "invoices")
        world.disk.bytes_free = 300  # enough for the decision, too little for all of the rest
        commit = asyncio.ensure_future(ending.end(commit=True))
        await asyncio.sleep(20)
        world.disk.bytes_free = 1 << 20
        await until_room(world, node)
        try:
            await asyncio.wait_for(commit, 60)
        except CoordinatorUnavailable:  # not even the decision could be written: the client decides again
            await ending.end(commit=True)
        assert [record.value for record in world.read("orders", 0)] == [b"x"]
        await asyncio.sleep(10)
        assert world.partition("invoices").log.producers.first_open_offset is None

    in_world(scenario)


def test_descriptors_that_run_out_come_back() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await node.admin.alter("orders", {"segment.bytes": 100_000})
        produce(world, b"x" * 90_000)
        world.disk.has_descriptors = False
        with pytest.raises(TooManyOpenFiles):
            produce(world, b"x" * 90_000)
        assert node.headroom.is_out_of_files
        assert produce(world) == 1  # it fits into the segment
        await asyncio.sleep(5)
        assert node.headroom.is_out_of_files
        world.disk.has_descriptors = True
        await asyncio.sleep(1.5)
        assert not node.headroom.is_out_of_files
        assert produce(world, b"x" * 90_000) == 2

    in_world(scenario)
