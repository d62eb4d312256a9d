"""Calls to a store in another process: how often they are attempted, and what is said when that was in vain.

An attempt ends with a result, with an error of the store, or with one of these:

    NotDone   certainly without effect: it was not sent, or was refused before anything was done
    Lost      it was sent, and there is no clear response; a write may have happened

A read is repeated after both until there is no time left, a write only after the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flymq.host.clock import Clock
from flymq.host.entropy import Entropy
from flymq.model.errors import IndeterminateResult, MetadataUnavailable

_PAUSE_S = 0.1

T = TypeVar("T")

Attempt = Callable[[float], Awaitable[T]]
"""One attempt, with the time at which it must have ended."""


class NotDone(Exception):
    pass


class Lost(Exception):
    pass


class Attempts:
    def __init__(self, clock: Clock, entropy: Entropy, timeout_s: float, store: str) -> None:
        """`store` is its name in messages."""
        self._clock = clock
        self._entropy = entropy
        self._timeout_s = timeout_s
        self._store = store

    async def read(self, attempt: Attempt[T]) -> T:
        """Make a call that may be repeated."""
        deadline_s = self._clock.monotonic_s() + self._timeout_s
        while True:
            try:
                return await attempt(deadline_s)
            except (NotDone, Lost) as error:
                await self._pause(deadline_s, error)

    async def write(self, attempt: Attempt[T]) -> T:
        """Make a call that must not happen twice."""
        deadline_s = self._clock.monotonic_s() + self._timeout_s
        while True:
            try:
                return await attempt(deadline_s)
            except Lost as error:
                raise IndeterminateResult(f"the response of {self._store} was lost: {error}") from error
            except NotDone as error:
                await self._pause(deadline_s, error)

    async def _pause(self, deadline_s: float, error: Exception) -> None:
        """Wait before the next attempt, or give up."""
        pause_s = _PAUSE_S * (0.5 + self._entropy.random())
        if self._clock.monotonic_s() + pause_s >= deadline_s:
            raise MetadataUnavailable(f"{self._store} cannot be reached: {error}") from error
        await asyncio.sleep(pause_s)
