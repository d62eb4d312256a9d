"""Maintenance goes on whatever happens to one partition, and never works on the files of a deleted topic."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer
from flymq.broker.replicas.lag import UNKNOWN
from flymq.broker.replicas.maintenance import Maintenance, MaintenanceIntervals
from flymq.broker.safety import wait_safe
from flymq.coordination.entries import OffsetValue
from flymq.host.tasks import Tasks
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.storage.log import Log

Scenario = Callable[[World, Broker], Awaitable[None]]


def in_world(scenario: Scenario) -> None:
    async def live() -> None:
        world = World()
        await scenario(world, await world.start())
        await world.close()

    run(live())


def start_maintenance(world: World, node: Broker, interval_ms: int) -> Tasks:
    tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error!r}"))
    threads = world.machine.host.new_threads("disk", 1)
    intervals = MaintenanceIntervals(interval_ms, interval_ms, interval_ms)
    Maintenance(node.replicas, node.flusher, threads, node.steady_clock).start(tasks, intervals)
    return tasks


def produce(world: World, topic: str, size: int = 1_000, key: bytes | None = None) -> None:
    partition = world.partition(topic)
    partition.append(encode_batch([(key, b"x" * size)]), Acks.LEADER)


def test_topics_deleted_during_checkpoints_and_compaction_leave_no_error_and_no_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World, node: Broker) -> None:
        tasks = start_maintenance(world, node, interval_ms=1)
        for number in range(60):
            name = f"topic-{number}"
            policy = ("delete", "compact")[number % 2]
            settings = {"cleanup.policy": policy, "segment.bytes": 1024, "min.cleanable.dirty.ratio": 0}
            await node.admin.create(name, partitions=3, settings=settings)
            for partition in node.replicas.of(node.image.get(name)).values():
                for _ in range(4):
                    partition.append(encode_batch([(b"key", b"x" * 600)]), Acks.ALL)
            await asyncio.sleep(0.001 * (number % 7))
            await node.admin.delete(name)
        await tasks.close()
        assert [path for path in world.disk.paths() if "topic-" in str(path)] == []
        assert [name for name in world.disk.list(Path("/data/topics")) if name.startswith("topic-")] == []
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []

    in_world(scenario)


def test_a_corrupt_batch_that_compaction_meets_is_reported_once_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World, node: Broker) -> None:
        settings = {"cleanup.policy": "compact", "segment.bytes": 1024, "min.cleanable.dirty.ratio": 0}
        await node.admin.create("table", partitions=1, settings=settings)
        for _ in range(4):
            produce(world, "table", key=b"key")
        node = await world.restart()  # batches that this process wrote are known to be good
        log = world.partition("table").log
        assert isinstance(log, Log)
        paths = [segment.path for segment in log.segments]
        world.disk.flip_bit(paths[1], 100)
        with caplog.at_level(logging.ERROR):
            tasks = start_maintenance(world, node, interval_ms=1)
            await asyncio.sleep(0.1)
            await tasks.close()
        (message,) = (record.getMessage() for record in caplog.records)
        assert message.startswith(f"corrupt batch: {paths[1]} at byte 0")
        assert len(log.damage) == 1 and log.failure is None
        assert [segment.path for segment in log.segments] == paths

    in_world(scenario)


def test_compaction_does_not_wait_for_the_next_checkpoint() -> None:
    async def scenario(world: World, node: Broker) -> None:
        settings = {"cleanup.policy": "compact", "segment.bytes": 1024, "min.cleanable.dirty.ratio": 0}
        await node.admin.create("orders", partitions=1, settings=settings)
        for number in range(20):
            world.partition("orders").append(encode_batch([(b"key", b"%d" % number * 300)]), Acks.LEADER)
        threads = world.machine.host.new_threads("disk", 1)
        maintenance = Maintenance(node.replicas, node.flusher, threads, node.steady_clock)
        await maintenance.compact(world.partition("orders"))
        assert len(world.read("orders", 0)) < 5

    in_world(scenario)


def test_a_record_is_compacted_after_the_lag_it_was_given_though_its_segment_is_not_full() -> None:
    async def scenario(world: World, node: Broker) -> None:
        settings = {"cleanup.policy": "compact", "max.compaction.lag.ms": 60_000, "min.cleanable.dirty.ratio": 1}
        await node.admin.create("orders", partitions=1, settings=settings)
        tasks = start_maintenance(world, node, interval_ms=1_000)
        for value in (b"old", b"new"):
            world.partition("orders").append(encode_batch([(b"key", value)]), Acks.LEADER)
        await asyncio.sleep(55)
        assert len(world.read("orders", 0)) == 2
        await asyncio.sleep(10)
        assert [record.value for record in world.read("orders", 0)] == [b"new"]
        await tasks.close()

    in_world(scenario)


def test_a_topic_without_a_cleanup_policy_keeps_everything() -> None:
    async def scenario(world: World, node: Broker) -> None:
        settings = {"cleanup.policy": "", "segment.bytes": 1024, "retention.bytes": 1000, "retention.ms": 1}
        await node.admin.create("orders", partitions=1, settings=settings)
        tasks = start_maintenance(world, node, interval_ms=100)
        for _ in range(20):
            produce(world, "orders", 600, key=b"key")
            await asyncio.sleep(1)
        await tasks.close()
        assert len(world.read("orders", 0)) == 20

    in_world(scenario)


def test_a_partition_that_fails_is_logged_once_and_the_others_are_maintained(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World, node: Broker) -> None:
        for topic in ("bad", "good"):
            await node.admin.create(topic, partitions=1, settings={"segment.bytes": 1024, "retention.bytes": 1000})
        bad, good = world.partition("bad").log, world.partition("good").log
        bad.retain = None  # type: ignore[method-assign, assignment]
        tasks = start_maintenance(world, node, interval_ms=100)
        for _ in range(20):
            produce(world, "good", 600)
            await asyncio.sleep(1)
        assert isinstance(good, Log)
        assert len(good.segments) < 5
        await tasks.close()
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(said) == 1 and said[0].startswith("retain of bad-0 failed"), said

    in_world(scenario)


def test_a_vanished_segment_leaves_the_lag_of_its_partition_unknown() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await node.admin.create("orders", partitions=2, settings={"segment.bytes": 1024})
        for _ in range(20):
            produce(world, "orders", 600)
        orders = TopicPartition("orders", 0)
        _, safe = node.groups.commit("g", Committer(), {orders: OffsetValue(0)})
        await wait_safe(safe)
        log = world.partition("orders").log
        assert isinstance(log, Log)
        log.release_sealed()
        world.disk.remove(log.segments[0].path)
        lag = node.groups.lag(orders, 0)
        assert (lag.records, lag.ms) == (20, UNKNOWN)

    in_world(scenario)


def test_a_partition_that_found_no_room_at_opening_is_opened_later(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        produce(world, "orders")
        await wait_safe(world.partition("orders").safe())
        await world.restart()
        await world.close()
        world.machine.start()
        world.disk.fail_next("open", "orders~", errno.EMFILE)
        node = await world.start()
        assert any("orders-0 is offline" in message for message in caplog.messages)
        await asyncio.sleep(3)
        assert node.replicas.all_offline() == {}
        assert len(world.read("orders", 0)) == 1

    in_world(scenario)
