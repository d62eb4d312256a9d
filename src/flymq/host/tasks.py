"""Tasks with an owner, and threads for disk I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, cast

from flymq.host.time_slices import TimeSlice

T = TypeVar("T")

Steps = Generator[Callable[[], Any] | None, Any, T]
"""Long work on shared state, in steps: its own code runs on the event loop; what it yields runs in a thread, and its
result is sent back. None means that others may be served now. The state can change at every yield."""


TaskFailed = Callable[[str, BaseException], None]
"""Called with the name and the error of a task that has failed."""


class Tasks:
    """The running tasks of one owner. A failed task is reported; none is left after `close`."""

    def __init__(self, on_failure: TaskFailed) -> None:
        self.on_failure = on_failure
        self._running: dict[asyncio.Task[None], None] = {}  # in start order

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_failure(task.get_name(), error)

    async def close(self) -> None:
        """Cancel all running tasks and wait for them, including tasks that they spawn meanwhile."""
        while running := list(self._running):
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for task in running:
                self._running.pop(task, None)  # their callbacks run one iteration later


class Threads(Protocol):
    """Runs calls that wait for the disk."""

    async def run(self, work: Callable[[], T]) -> T: ...

    def close(self) -> None: ...


class SystemThreads:
    """A small pool of threads."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class InlineThreads:
    """Runs the work synchronously in the calling thread: for simulation."""

    async def run(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return work()

    def close(self) -> None:
        pass


async def run_steps(threads: Threads, steps: Steps[T]) -> T:
    """Run the steps, and return the result of the last."""
    slice_ = TimeSlice()
    try:
        work = next(steps)
        while True:
            try:
                if work is None:
                    await slice_.yield_if_over()
                    result = None
                else:
                    result = await threads.run(work)
                    slice_ = TimeSlice()
            except Exception as error:
                work = steps.throw(error)
            else:
                work = steps.send(result)
    except StopIteration as end:
        return cast(T, end.value)
    finally:
        steps.close()


def run_steps_here(steps: Steps[T]) -> T:
    """Run the steps synchronously: where there is no event loop to keep free."""
    try:
        work = next(steps)
        while True:
            try:
                result = None if work is None else work()
            except Exception as error:
                work = steps.throw(error)
            else:
                work = steps.send(result)
    except StopIteration as end:
        return cast(T, end.value)
