"""An event loop that measures its own iterations.

An iteration runs every callback that is due, then waits for sockets and timers. A request that arrives meanwhile waits
for its end, so the longest iteration is the worst delay that the loop itself adds to a request.
"""

from __future__ import annotations

import asyncio
import selectors
from time import perf_counter

STALL_S = 0.02
"""An iteration longer than this is a stall."""


class _TimedSelector(selectors.DefaultSelector):
    """Times what happens between two waits. Two readings of the clock per iteration: a fraction of a microsecond."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0
        self.stalls = 0
        self._woke_s = perf_counter()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        busy_s = perf_counter() - self._woke_s
        if busy_s > self.longest_s:
            self.longest_s = busy_s
        if busy_s > STALL_S:
            self.stalls += 1
        ready = super().select(timeout)
        self._woke_s = perf_counter()
        return ready


class TimedEventLoop(asyncio.SelectorEventLoop):
    """The event loop of a broker's process."""

    def __init__(self) -> None:
        self._timed = _TimedSelector()
        super().__init__(self._timed)

    def take_longest_s(self) -> float:
        """Return the length of the longest iteration since the last call."""
        longest_s, self._timed.longest_s = self._timed.longest_s, 0.0
        return longest_s

    @property
    def stalls(self) -> int:
        """How many iterations were stalls so far."""
        return self._timed.stalls
