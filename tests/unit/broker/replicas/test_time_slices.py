"""Long work on the event loop gives way to others. Time passes here by looking at the clock: a millisecond each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from tests.unit.storage.batches import append, batch, open_simulated, reopen

from flymq.broker.replicas.fetching import Fetches, FetchFrom, FetchQuery, PendingFetch
from flymq.broker.replicas.partition import Partition
from flymq.host.clock import ManualClock
from flymq.host.tasks import InlineThreads, Steps, Tasks, run_steps
from flymq.host.time_slices import TimeSlice
from flymq.model.delivery import Acks
from flymq.model.names import TopicPartition
from flymq.storage.flusher import Flusher

T = TypeVar("T")
NAME = TopicPartition("orders", 0)


class TickingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock advances at each look; it counts its iterations."""

    now_s = 0.0
    iterations = 0

    def time(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def _run_once(self) -> None:
        self.iterations += 1
        super()._run_once()  # type: ignore[misc]


def run(work: Callable[[TickingLoop], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=TickingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, TickingLoop)
        return runner.run(work(loop))


def test_readers_that_wake_together_are_served_over_many_iterations() -> None:
    async def scenario(loop: TickingLoop) -> None:
        tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error}"))
        flusher = Flusher(InlineThreads(), tasks, lambda error: pytest.fail(str(error)))
        partition = Partition(NAME, open_simulated()[1], flusher=flusher, clock=ManualClock())
        partition.lead(0)
        fetches = Fetches(lambda name: partition)
        served: list[tuple[int, int]] = []
        waiting: list[PendingFetch[Any]] = []
        for number in range(100):
            waiting.append(fetches.wait(FetchQuery([FetchFrom(NAME, 0, 1 << 20)], wait_ms_max=10**9), list))
            waiting[-1].add_done_callback(lambda done, number=number: served.append((number, loop.iterations)))  # type: ignore[misc]
        partition.append(batch("news"), Acks.LEADER)
        for _ in range(200):
            await asyncio.sleep(0)
        assert [number for number, _ in served] == list(range(100))
        assert len({iteration for _, iteration in served}) >= 25, "a slice has room for a few"

    run(scenario)


def test_of_many_long_requests_one_slice_is_run_in_each_iteration() -> None:
    async def scenario(loop: TickingLoop) -> None:
        worked: list[tuple[int, int]] = []  # iteration and task

        async def work(number: int) -> None:
            slice_ = TimeSlice()
            for _ in range(50):
                worked.append((loop.iterations, number))
                await slice_.yield_if_over()

        tasks = [asyncio.ensure_future(work(number)) for number in range(20)]
        await asyncio.sleep(0)
        tasks[7].cancel()
        await asyncio.wait(tasks)
        began = worked[0][0]
        later = {at: {task for when, task in worked if when == at} for at, _ in worked if at > began}
        assert {len(tasks) for tasks in later.values()} == {1}
        assert [task for at, task in worked if at > began][-1] == 19, "they take turns"

    run(scenario)


def test_work_in_steps_gives_way_when_its_slice_is_over() -> None:
    def work() -> Steps[int]:
        for _ in range(100):
            yield None
        return (yield lambda: 42)

    async def scenario(loop: TickingLoop) -> None:
        before = loop.iterations
        assert await run_steps(InlineThreads(), work()) == 42
        assert loop.iterations - before >= 30

    run(scenario)


def test_a_failure_in_a_thread_reaches_the_steps() -> None:
    seen: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    def work() -> Steps[str]:
        try:
            yield fail
        except ValueError as error:
            seen.append(str(error))
        return "went on"

    async def scenario(_: TickingLoop) -> None:
        assert await run_steps(InlineThreads(), work()) == "went on"

    run(scenario)
    assert seen == ["no"]


def test_steps_that_are_cancelled_in_a_thread_are_closed() -> None:
    ended: list[bool] = []

    class Never:
        async def run(self, work: Callable[[], T]) -> T:
            await asyncio.Event().wait()
            return work()

        def close(self) -> None: ...

    def work() -> Steps[None]:
        try:
            yield lambda: None
        finally:
            ended.append(True)

    async def scenario(_: TickingLoop) -> None:
        running = asyncio.ensure_future(run_steps(Never(), work()))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert ended == [True]

    run(scenario)


def test_a_search_by_time_pauses_between_segments_and_reads_their_files_in_a_thread() -> None:
    disk, log = open_simulated()
    for number in range(50):
        append(log, batch(f"{number}"))
        log.roll()
    log.close()
    log = reopen(disk)
    assert not any(segment.knows_max_timestamp for segment in log.segments[:-1])
    steps = log.find_time(1 << 60)
    load = next(steps)
    assert load is not None
    with pytest.raises(StopIteration):
        for pauses in range(100):
            work = steps.send(load() if pauses == 0 else None)
            assert work is None, "no batch is read: none is that late"
    assert pauses == 51
    assert all(segment.knows_max_timestamp for segment in log.segments)


def test_a_slice_of_time_ends() -> None:
    async def scenario(_: TickingLoop) -> None:
        slice_ = TimeSlice()
        assert not slice_.is_over
        assert [slice_.is_over for _ in range(4)][-1]

    run(scenario)
