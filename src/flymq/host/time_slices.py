"""Long work on the event loop, in slices of a few milliseconds, so that other requests are served in between.

All long work takes turns: in one iteration of the loop one slice is run, however many requests are long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

_SLICE_S = 0.002


class TimeSlice:
    """How long a task may run before it yields to the event loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._turns, self._time = _turns_of(loop), loop.time
        self._until_s = self._time() + _SLICE_S

    @property
    def is_over(self) -> bool:
        return self._time() > self._until_s

    async def yield_if_over(self) -> None:
        """If the slice is used up, wait for the next turn, and start a new one."""
        if self.is_over:
            await self._turns.next()
            self._until_s = self._time() + _SLICE_S


class _Turns:
    """Tasks that wait for their next slice: one goes on in each iteration of the loop, in the order of arrival."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def next(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._go_on)
        return turn

    def _go_on(self) -> None:
        waiting = self._waiting
        while waiting:
            turn = waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                break
        self._is_scheduled = bool(waiting)
        if waiting:
            asyncio.get_running_loop().call_soon(self._go_on)


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns_of(loop: asyncio.AbstractEventLoop) -> _Turns:
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = _Turns()
    return turns
