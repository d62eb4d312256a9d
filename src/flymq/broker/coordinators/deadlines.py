"""Many deadlines with one timer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from heapq import heappop, heappush

from flymq.host.clock import Clock
from flymq.host.failure_log import FailureLog
from flymq.model.errors import StorageError

logger = logging.getLogger(__name__)

_RETRY_S = 1.0


class Deadlines:
    """Calls `on_due(name)` at the deadline of a name, which returns its next deadline, if there is one."""

    def __init__(self, clock: Clock, on_due: Callable[[str], float | None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._failures = FailureLog(logger, "what is due for %s is late")

    def set(self, name: str, at_s: float | None) -> None:
        """Set a deadline, unless an earlier one is set: a call that is too early does no harm."""
        if at_s is not None and at_s < self._at.get(name, float("inf")):
            self._at[name] = at_s
            heappush(self._heap, (at_s, name))
            self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        at_s = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= at_s:
                return
            self._timer.cancel()
        self._timer_at = at_s
        delay_s = max(0.0, at_s - self._clock.monotonic_s())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic_s()
        while self._heap and self._heap[0][0] <= now_s:
            at_s, name = heappop(self._heap)
            if self._at.get(name) == at_s:  # else it was set to an earlier time meanwhile
                del self._at[name]
                try:
                    next_s = self._on_due(name)
                except StorageError as error:  # the disk is full, say
                    next_s = now_s + _RETRY_S
                    self._failures.failed(name, error)
                else:
                    self._failures.succeeded(name)
                self.set(name, next_s)
        if self._heap:
            self._arm()
