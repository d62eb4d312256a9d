"""Corruption in sealed segments is found by the scrub, or by a reader, and reported once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.broker.world import World

from flymq.broker.replicas.partition import View
from flymq.broker.replicas.scrubbing import Scrubber
from flymq.host.tasks import InlineThreads, run_steps_here
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.model.errors import CorruptLog
from flymq.record.batch import encode_batch
from flymq.storage.log import Log

RATE = 1000
BATCH = bytes(encode_batch([(None, b"x" * 400)]))


def in_world(scenario: Callable[[World, Log], Awaitable[None]]) -> None:
    async def live() -> None:
        world = World()
        await world.start()
        await world.node.admin.create("orders", partitions=1, settings={"segment.bytes": 1024})
        for _ in range(9):
            world.partition("orders").append(BATCH, Acks.LEADER)
        await world.restart()  # batches that this process wrote are known to be good
        log = world.partition("orders").log
        assert isinstance(log, Log) and len(log.segments) == 5
        await scenario(world, log)
        await world.close()

    run(live())


def scrubber(world: World) -> Scrubber:
    return Scrubber(world.node.replicas, InlineThreads(), bytes_per_s=RATE)


def corrupt(world: World, log: Log, segment: int) -> Path:
    path = log.segments[segment].path
    world.disk.flip_bit(path, 100)
    return path


def test_a_corrupt_batch_in_a_sealed_segment_is_reported_and_the_partition_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World, log: Log) -> None:
        path = corrupt(world, log, 1)
        with caplog.at_level(logging.ERROR):
            await scrubber(world).scrub_all()
            await scrubber(world).scrub_all()
        (message,) = (record.getMessage() for record in caplog.records)
        assert message.startswith(f"corrupt batch: {path} at byte 0")
        assert list(log.damage) and log.failure is None
        world.partition("orders").append(BATCH, Acks.LEADER)

    in_world(scenario)


def test_the_scrub_reads_every_sealed_segment_and_no_faster_than_its_rate() -> None:
    async def scenario(world: World, log: Log) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        logs = [each.log for each in world.node.replicas if isinstance(each.log, Log)]
        sealed = sum(segment.size for each in logs for segment in each.segments[:-1])
        assert await scrubber(world).scrub_all() == sealed >= 8 * len(BATCH)
        assert loop.time() - began == pytest.approx(sealed / RATE)
        assert not log.damage

    in_world(scenario)


def test_a_segment_that_retention_takes_during_the_scrub_is_no_damage() -> None:
    async def scenario(world: World, log: Log) -> None:
        corrupt(world, log, 2)
        task = asyncio.create_task(scrubber(world).scrub_all())
        await asyncio.sleep(0.1)
        run_steps_here(log.delete_before(log.end_offset))
        await task
        assert not log.damage and log.failure is None

    in_world(scenario)


def test_corruption_that_a_reader_meets_is_kept_until_its_segment_is_gone() -> None:
    async def scenario(world: World, log: Log) -> None:
        path = corrupt(world, log, 0)
        with pytest.raises(CorruptLog):
            world.partition("orders").read(0, bytes_max=1, view=View.UNCOMMITTED)
        assert [text.startswith(f"{path} at byte 0") for text in log.damage] == [True]
        run_steps_here(log.delete_before(4))
        assert not log.damage

    in_world(scenario)


def test_a_segment_whose_files_compaction_is_exchanging_is_no_damage() -> None:
    async def scenario(world: World, log: Log) -> None:
        partition = world.partition("orders")
        async with partition.upkeep:  # compaction is at it: the file is gone, and the log does not know it yet
            world.disk.remove(log.segments[1].path)
            task = asyncio.create_task(scrubber(world).scrub_all())
            await asyncio.sleep(100)
            assert not task.done() and log.failure is None
            run_steps_here(log.delete_before(log.end_offset))
        await task
        assert not log.damage and log.failure is None

    in_world(scenario)


def test_a_segment_that_is_gone_is_noticed_by_the_scrub_of_the_one_before() -> None:
    async def scenario(world: World, log: Log) -> None:
        path = log.segments[2].path
        await world.close()
        world.disk.remove(path)
        await world.start()
        assert world.partition("orders").log.failure is None
        await scrubber(world).scrub_all()
        failure = world.partition("orders").log.failure
        assert failure is not None
        assert "orders-0 is offline" in failure.message and "from offset 4 to 5 are missing" in failure.message

    in_world(scenario)
