"""Event loop lag: the time between when a callback was due and when it ran.

Every request waits for the event loop, so this delay is part of every client's latency.
"""

from __future__ import annotations

import asyncio

from flymq.model.histogram import Histogram

_INTERVAL_S = 0.1


class LoopLag:
    """Measures the lag ten times a second."""

    def __init__(self) -> None:
        self.histogram = Histogram()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _INTERVAL_S
            await asyncio.sleep(_INTERVAL_S)
            self.histogram.observe(max(0.0, loop.time() - due_s))
