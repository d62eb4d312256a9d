"""Long work on the event loop, in slices of a few milliseconds, so that other requests are served in between."""

from __future__ import annotations

import asyncio

_SLICE_S = 0.002


class TimeSlice:
    """How long a task may run before it yields to the event loop."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._until_s = self._time() + _SLICE_S

    @property
    def is_over(self) -> bool:
        return self._time() > self._until_s

    async def yield_if_over(self) -> None:
        """Yield to the event loop if the slice is used up, and start a new one."""
        if self.is_over:
            await asyncio.sleep(0)
            self._until_s = self._time() + _SLICE_S
