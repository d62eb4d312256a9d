"""Threads whose work is timed: those that wait for the disk, so that monitoring knows how long fsync takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from flymq.host.tasks import Threads
from flymq.model.histogram import Histogram

T = TypeVar("T")


class TimedThreads:
    """Passes work on, and takes the time from asking to the answer: what a client waits for."""

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
