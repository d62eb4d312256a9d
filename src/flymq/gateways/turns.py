"""Long work in the event loop, a few milliseconds at a time: everybody else's requests go on in between."""

from __future__ import annotations

import asyncio

_TURN_S = 0.002


class Turns:
    """Knows when it is the others' turn."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._until_s = self._time() + _TURN_S

    @property
    def is_over(self) -> bool:
        return self._time() > self._until_s

    async def give(self) -> None:
        """Let the others go first, if it is their turn."""
        if self.is_over:
            await asyncio.sleep(0)
            self._until_s = self._time() + _TURN_S
