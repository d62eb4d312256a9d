"""Topics created, extended and deleted on a whole broker, with a disk that refuses and clients that leave."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer
from flymq.broker.safety import wait_safe
from flymq.cluster.catalog import Catalog, PartitionState, partition_key
from flymq.coordination.entries import OffsetValue
from flymq.host import time_slices
from flymq.host.virtual_time import run
from flymq.metadata.store import Delete
from flymq.model.delivery import Acks
from flymq.model.errors import DiskFull, InvalidTopicName, StorageError, TopicNotFound
from flymq.model.names import TopicPartition
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import encode_batch
from flymq.storage.data_directory import PartitionLog
from flymq.storage.log import Log

Scenario = Callable[[World, Broker], Awaitable[None]]


def in_world(scenario: Scenario, *, auto_create: bool = False) -> None:
    async def live() -> None:
        world = World(auto_create=auto_create)
        await scenario(world, await world.start())
        await world.close()

    run(live())


def test_topics_come_and_go_while_the_offsets_of_a_deleted_one_cannot_be_forgotten() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        _, safe = node.groups.commit("billing", Committer(), {TopicPartition("orders", 0): OffsetValue(1)})
        await wait_safe(safe)
        for number in range(2):
            log = world.partition("__offsets", number).log
            assert isinstance(log, Log)
            log.go_offline(StorageError("the disk is full"))
        await node.admin.delete("orders")
        await world.create_topic("invoices", 1)
        assert "orders" not in node.image
        assert not [path for path in world.disk.paths() if "orders~" in str(path)]

    in_world(scenario)


def test_a_topic_is_created_though_the_client_that_asked_first_is_gone() -> None:
    async def scenario(world: World, node: Broker) -> None:
        first = asyncio.ensure_future(node.admin.get_or_create("orders"))
        second = asyncio.ensure_future(node.admin.get_or_create("orders"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).name == "orders"

    in_world(scenario, auto_create=True)


def test_a_topic_that_cannot_be_opened_is_gone_though_nobody_waits_for_it() -> None:
    async def scenario(world: World, node: Broker) -> None:
        world.disk.fail_next("open", "orders~", errno.EIO)
        asking = asyncio.ensure_future(node.admin.create("orders"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.sleep(1)
        await world.create_topic("orders", 2)

    in_world(scenario)


def test_partitions_that_cannot_be_opened_are_not_added_and_the_others_serve_on() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        world.disk.fail_next("open", "orders~", errno.ENOSPC)
        with pytest.raises(DiskFull):
            await node.admin.add_partitions("orders", 3)
        assert len((await node.admin.get_or_create("orders")).partitions) == 1
        await asyncio.sleep(2)
        await node.admin.add_partitions("orders", 3)
        assert world.partition("orders", 2).leads
        await world.restart()
        assert world.partition("orders", 2).leads

    in_world(scenario)


def test_a_partition_that_cannot_be_closed_does_not_keep_the_others_from_a_clean_shutdown() -> None:
    async def scenario(world: World, node: Broker) -> None:
        for topic in ("invoices", "orders"):
            await world.create_topic(topic, 1)
            world.partition(topic).append(encode_batch([(None, b"x")]), Acks.LEADER)
        log = world.partition("invoices").log
        assert isinstance(log, Log)
        world.disk.fail_next("append", str(log.directory / "checkpoint"), errno.EIO)
        await world.restart()
        logs = {partition.name.topic: partition.log for partition in world.node.replicas}
        assert [topic for topic, log in logs.items() if isinstance(log, Log) and not log.recovery.clean] == ["invoices"]

    in_world(scenario)


def test_a_topic_that_is_deleted_while_its_partitions_are_added_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slices, "_SLICE_S", -1.0)  # others come in between any two partitions

    async def scenario(world: World, node: Broker) -> None:
        directory, are_open = node.replicas._directory, asyncio.Event()
        open_log = directory.open

        def open_and_tell(partition: TopicPartition, topic_id: UUID, config: TopicConfig) -> PartitionLog:
            if partition.partition == 19:
                are_open.set()
            return open_log(partition, topic_id, config)

        monkeypatch.setattr(directory, "open", open_and_tell)
        creating = asyncio.ensure_future(node.admin.create("orders", partitions=20))
        await are_open.wait()
        for _ in range(1000):
            if node.replicas.find(TopicPartition("orders", 3)) is not None:
                break
            await asyncio.sleep(0)
        assert node.replicas.find(TopicPartition("orders", 19)) is None
        await node.admin.delete("orders")
        await asyncio.wait([creating])
        assert [partition.name for partition in node.replicas if partition.name.topic == "orders"] == []
        await world.create_topic("orders", 2)
        assert len(node.replicas.of(node.image.get("orders"))) == 2

    in_world(scenario)


@pytest.mark.parametrize(("first", "second"), [("a.x", "a_x"), ("a_x", "a.x"), ("a_b.c", "a.b_c")])
def test_names_that_differ_in_dots_and_underscores_alone_collide(first: str, second: str) -> None:
    async def scenario(world: World, node: Broker) -> None:
        creating = asyncio.ensure_future(node.admin.create(first))
        await asyncio.sleep(0)
        for _ in range(2):  # while the first one is created, and afterwards
            with pytest.raises(InvalidTopicName):
                await node.admin.create(second)
            with pytest.raises(InvalidTopicName):
                await node.admin.create(second, validate_only=True)
            with pytest.raises(InvalidTopicName):
                await node.admin.get_or_create(second)
            await creating
        await node.admin.delete(first)
        await node.admin.create(second)

    in_world(scenario, auto_create=True)


def test_records_that_wait_for_followers_are_told_that_their_topic_was_deleted() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        topic = node.image.get("orders")
        before = topic.partitions[0]
        after = PartitionState(before.leader, before.leader_epoch, [before.leader, 7], [before.leader, 7])
        changed = await Catalog(world.store).change_state(topic.topic_id, 0, before, after)
        await node.image.until(changed.revision)
        safe = world.partition("orders").append(encode_batch([(None, b"tea")]), Acks.ALL).safe
        assert safe is not None
        await node.admin.delete("orders")
        with pytest.raises(TopicNotFound):
            await wait_safe(safe)

    in_world(scenario)


def test_a_topic_whose_metadata_is_damaged_keeps_its_records(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 2)
        world.partition("orders").append(encode_batch([(None, b"tea")]), Acks.LEADER)
        key = partition_key(node.image.get("orders").topic_id, 1)
        damaged = await world.store.txn(success=[Delete(key)])
        await node.image.until(damaged.revision)
        assert "is served as it was" in caplog.text
        assert world.partition("orders").log.end_offset == 1

    in_world(scenario)
