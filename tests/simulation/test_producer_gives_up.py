"""A batch that is given up does not make the producer write others twice. A whole broker, in virtual time."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.simulation.world import BROKER, World, patiently

from flymq.host.virtual_time import run
from flymq.model.errors import FlyMQError, FsyncFailed
from flymq.model.names import TopicPartition
from flymq.storage.segments.segment import segment_name


@pytest.mark.parametrize("seed", range(10))
def test_giving_up_one_partitions_batch_leaves_the_sequence_numbers_of_others_alone(seed: int) -> None:
    async def live() -> None:
        world = World(seed)
        await world.start()
        await world.client("admin").create_topic("t", 2)
        client = world.client(
            "writer", retries=1, request_timeout_ms=400, retry_backoff_ms=1_000, retry_backoff_max_ms=1_000
        )
        producer = client.producer()
        for partition in range(2):
            await producer.send("t", b"first", partition=partition)
        await producer.flush()

        world.network.cut(BROKER, "writer")  # what is written is not acknowledged any more
        given_up = await producer.send("t", b"second", partition=0)
        await asyncio.sleep(0.3)
        other = await producer.send("t", b"second", partition=1)
        with pytest.raises(FlyMQError):
            await given_up
        world.network.mend(BROKER, "writer")
        is_acknowledged = True
        try:
            await other
        except FlyMQError:
            is_acknowledged = False
        for partition in range(2):
            await producer.send("t", b"third", partition=partition)
        await producer.flush()

        seen = await world.read(client, "t")
        for partition in range(2):
            values = seen[TopicPartition("t", partition)]
            assert sorted(set(values)) == sorted(values), f"something was written twice: {values}"
            assert {b"first", b"third"} <= set(values)
        assert b"second" in seen[TopicPartition("t", 1)] or not is_acknowledged
        await world.close()

    run(live())


@pytest.mark.parametrize("seed", range(5))
def test_sequence_numbers_of_a_batch_whose_fsync_failed_are_not_given_to_the_next_one(seed: int) -> None:
    """It is in the log although its writer was told of an error: the next batch would be taken for its repetition."""

    async def live() -> None:
        world = World(seed)
        await world.start()
        client = world.client("writer", acks="all")
        await patiently(client.admin.create_topic, "t", partitions=1, settings={"persistence": "fsync"})
        producer = client.producer()
        await producer.produce("t", b"first")
        world.machine.disk.fail_next("sync", f"0/{segment_name(0, '.log')}", errno.EIO)
        with pytest.raises(FsyncFailed):
            await producer.produce("t", b"second")
        world.machine.kill()  # a broker stops by itself after a failed fsync
        await world.start_patiently()
        await producer.produce("t", b"third")
        assert (await world.read(client, "t"))[TopicPartition("t", 0)] == [b"first", b"second", b"third"]
        world._errors.found.clear()  # the broker has said that an fsync failed
        await world.close()

    run(live())
