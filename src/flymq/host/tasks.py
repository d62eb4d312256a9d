"""Tasks with an owner, and threads for disk I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Tasks:
    """The running tasks of one owner. A failed task is reported; none is left after `close`."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        self._running: dict[asyncio.Task[None], None] = {}  # in start order

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(task.get_name(), error)

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
