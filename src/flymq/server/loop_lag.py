"""How late the event loop is: the time between the moment something was due and the moment it ran.

Everything a broker does for its clients waits for its turn in the loop, so this is what all of them feel.
"""

from __future__ import annotations

import asyncio

from flymq.model.histogram import Histogram

_INTERVAL_S = 0.1


class LoopLag:
    """Looks ten times a second."""

    def __init__(self) -> None:
        self.histogram = Histogram()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _INTERVAL_S
            await asyncio.sleep(_INTERVAL_S)
            self.histogram.observe(max(0.0, loop.time() - due_s))
