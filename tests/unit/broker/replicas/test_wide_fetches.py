"""A fetch of many partitions gives way to others, and misses nothing that happens while it is read."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.unit.broker.replicas.test_time_slices import TickingLoop, run
from tests.unit.storage.batches import batch, open_simulated

from flymq.broker.replicas.fetching import WIDE, Fetches, FetchFrom, FetchQuery, PendingFetch, WideFetch
from flymq.broker.replicas.partition import Partition, PartitionRead
from flymq.host.clock import ManualClock
from flymq.host.tasks import InlineThreads, Tasks
from flymq.model.delivery import Acks
from flymq.model.errors import NotLeader, PartitionNotFound
from flymq.model.names import TopicPartition
from flymq.storage.flusher import Flusher

COUNT = WIDE + 50
BYTES_MAX = 1 << 20


class Topic:
    """Many partitions, and fetches from all of them."""

    def __init__(self) -> None:
        tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error}"))
        flusher = Flusher(InlineThreads(), tasks, lambda error: pytest.fail(str(error)))
        names = [TopicPartition("orders", number) for number in range(COUNT)]
        self.partitions = {
            name: Partition(name, open_simulated()[1], flusher=flusher, clock=ManualClock()) for name in names
        }
        for partition in self.partitions.values():
            partition.lead(0)
        self.fetches = Fetches(self.find)

    def find(self, name: TopicPartition) -> Partition:
        if name not in self.partitions:
            raise PartitionNotFound(f"{name} does not exist")
        return self.partitions[name]

    def __getitem__(self, number: int) -> Partition:
        return self.partitions[TopicPartition("orders", number)]

    def append(self, number: int, value: str = "news") -> None:
        self[number].append(batch(value), Acks.LEADER)

    def fetch(
        self, *, wait_ms: int = 10**9, bytes_min: int = 1, bytes_max: int = BYTES_MAX, numbers: range = range(COUNT)
    ) -> PendingFetch[list[PartitionRead]]:
        wanted = [FetchFrom(TopicPartition("orders", number), 0, BYTES_MAX) for number in numbers]
        query = FetchQuery(wanted, bytes_min=bytes_min, bytes_max=bytes_max, wait_ms_max=wait_ms)
        assert self.fetches.read(query) is None, "it is not read at once"
        return self.fetches.wait(query, lambda reads: reads)

    @property
    def waiting(self) -> int:
        return sum(bool(partition._waiting) for partition in self.partitions.values())


def found(reads: list[PartitionRead]) -> dict[int, int]:
    """Return how many offsets were read, by partition."""
    assert [read.name.partition for read in reads] == list(range(len(reads))), "in the order of the request"
    return {read.name.partition: read.offsets for read in reads if read.slice is not None}


def test_it_is_read_over_many_iterations() -> None:
    async def scenario(loop: TickingLoop) -> None:
        topic = Topic()
        for number in range(COUNT):
            topic.append(number)
        before = loop.iterations
        assert found(await topic.fetch()) == dict.fromkeys(range(COUNT), 1)
        assert loop.iterations - before >= COUNT // 4

    run(scenario)


async def test_it_waits_for_a_record_in_any_partition() -> None:
    topic = Topic()
    fetch = topic.fetch()
    await asyncio.sleep(0.01)
    assert topic.waiting == COUNT
    topic.append(123)
    assert found(await fetch) == {123: 1}
    assert topic.waiting == 0, "nobody waits any more"


def test_a_record_that_comes_while_it_is_read_is_not_missed() -> None:
    async def scenario(_: TickingLoop) -> None:
        topic = Topic()
        fetch = topic.fetch()
        for _turn in range(10):
            await asyncio.sleep(0)
        assert 3 < topic.waiting < COUNT - 1, "some were read, and others not yet"
        topic.append(3)  # which has been read
        assert found(await fetch) == {3: 1}

    run(scenario)


def test_records_that_come_all_the_time_do_not_hold_it_up() -> None:
    async def scenario(_: TickingLoop) -> None:
        topic = Topic()
        fetch = topic.fetch()
        turns = 0
        while not fetch._is_done:
            for number in range(COUNT):
                topic.append(number)
            await asyncio.sleep(0)
            turns += 1
            assert turns < 2 * COUNT, "each partition is read once"
        assert len(found(fetch.result())) == COUNT

    run(scenario)


async def test_an_error_keeps_no_frames_of_the_reader() -> None:
    topic = Topic()
    error = (await topic.fetch(numbers=range(COUNT + 1)))[COUNT].error
    assert error is not None
    assert error.__traceback__ is None


async def test_it_waits_until_there_are_enough_bytes() -> None:
    topic = Topic()
    size = len(batch("news"))
    fetch = topic.fetch(bytes_min=3 * size)
    for number in (7, 8, 7):
        await asyncio.sleep(0.01)
        assert topic.waiting
        topic.append(number)
    assert found(await fetch) == {7: 2, 8: 1}


async def test_the_response_is_not_larger_than_asked_for_and_has_at_least_one_batch() -> None:
    topic = Topic()
    size = len(batch("news"))
    for number in range(COUNT):
        topic.append(number)
    assert found(await topic.fetch(bytes_max=3 * size + 1)) == {0: 1, 1: 1, 2: 1}
    assert found(await topic.fetch(bytes_max=1)) == {0: 1}


async def test_its_wait_ends_in_time_with_what_there_is() -> None:
    topic = Topic()
    topic.append(5)
    assert found(await topic.fetch(wait_ms=1, bytes_min=BYTES_MAX)) == {5: 1}
    assert found(await topic.fetch(wait_ms=0, bytes_min=BYTES_MAX)) == {5: 1}
    assert topic.waiting == 0


async def test_an_error_of_a_partition_ends_the_wait() -> None:
    topic = Topic()
    fetch = topic.fetch()
    await asyncio.sleep(0.01)
    topic[9].follow(1)
    assert isinstance((await fetch)[9].error, NotLeader)
    reads = await topic.fetch(numbers=range(COUNT + 1))
    assert isinstance(reads[COUNT].error, PartitionNotFound)


async def test_a_reader_that_is_gone_waits_no_more() -> None:
    topic = Topic()
    fetch = topic.fetch()
    await asyncio.sleep(0.01)
    fetch.cancel()
    assert topic.waiting == 0
    topic.append(1)
    await asyncio.sleep(0.01)
    assert fetch.cancelled()


async def test_a_reader_that_is_gone_leaves_nothing_for_the_garbage_collector() -> None:
    topic = Topic()
    gc.collect()
    gc.disable()
    try:
        fetch = topic.fetch()
        await asyncio.sleep(0.01)
        fetch.cancel()
        del fetch
        await asyncio.sleep(0.01)
        assert not [each for each in gc.get_objects() if isinstance(each, WideFetch)]
    finally:
        gc.enable()


async def test_a_broker_that_closes_completes_it() -> None:
    topic = Topic()
    fetch = topic.fetch(bytes_min=BYTES_MAX)
    topic.append(1)
    topic.fetches.stop_waiting()
    assert found(await fetch) == {1: 1}
    assert found(await topic.fetch(bytes_min=BYTES_MAX)) == {1: 1}, "the next one does not wait at all"
