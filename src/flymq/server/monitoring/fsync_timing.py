"""Measure how long fsync takes, by timing the work of the threads that call it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from flymq.host.tasks import Threads
from flymq.model.histogram import Histogram

T = TypeVar("T")


class TimedThreads:
    """Runs work in other threads, and measures the time until its result arrives: what a client waits for."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self.durations = Histogram()

    async def run(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            return await self._threads.run(work)
        finally:
            self.durations.observe(loop.time() - began_s)

    def close(self) -> None:
        self._threads.close()
