"""Event loop lag: the time between when a callback was due and when it ran; and the longest iteration of the loop.

Every request waits for the event loop, so this delay is part of every client's latency. The lag is a sample; the
longest iteration misses nothing, but only the loop of a broker's own process measures it (host/event_loop.py).
"""

from __future__ import annotations

import asyncio
from collections import deque

from flymq.host.event_loop import TimedEventLoop
from flymq.model.histogram import Histogram

_INTERVAL_S = 0.1
_WINDOW = 600
"""Intervals over which the longest iteration is remembered: a minute, longer than most scrape intervals."""


class LoopLag:
    """Measures the lag ten times a second."""

    def __init__(self) -> None:
        self.histogram = Histogram()
        self.stalls = 0
        """Iterations of more than 20 ms so far."""
        self._longest: deque[float] = deque([0.0], maxlen=_WINDOW)

    @property
    def longest_s(self) -> float:
        """The longest iteration of the last minute; 0 in a loop that does not measure itself."""
        return max(self._longest)

    def forget_longest(self) -> None:
        """Start a new measurement of the longest iteration."""
        self._longest.clear()
        self._longest.append(0.0)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _INTERVAL_S
            await asyncio.sleep(_INTERVAL_S)
            self.histogram.observe(max(0.0, loop.time() - due_s))
            if isinstance(loop, TimedEventLoop):
                self._longest.append(loop.take_longest_s())
                self.stalls = loop.stalls
