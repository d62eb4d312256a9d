"""Wait for brokers that may be gone: ask the next one after a moment, and wait for no broker that was replaced.

A broker that was killed refuses connections at once. One that is paused, or cut off, says nothing: its connections stay
open, and only the other brokers know that it was replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from flymq.client.aio.connection import Connection
from flymq.model.errors import BrokerUnavailable, FlyMQError, RequestTimedOut

T = TypeVar("T")

PATIENCE_S = 2.0
"""How long a broker may be silent before the others are asked whether it was replaced."""


class InFlight(Generic[T]):
    """A request that a leader has not answered yet."""

    __slots__ = ("check", "connection", "leader", "parts", "request_id", "since_s", "timer")

    def __init__(
        self, connection: Connection, leader: int, request_id: int, parts: Sequence[T], since_s: float
    ) -> None:
        """`since_s`: from when on the leader's silence counts."""
        self.connection = connection
        self.leader = leader
        self.request_id = request_id
        self.parts = parts
        self.since_s = since_s
        self.timer: asyncio.TimerHandle | None = None
        self.check: asyncio.Task[None] | None = None

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.check is not None:
            self.check.cancel()


async def first_success(attempts: Sequence[Callable[[], Coroutine[Any, Any, T]]], *, stagger_s: float) -> T:
    """Start the attempts one after the other, each when the one before has failed or `stagger_s` have passed, and
    return the first result. An error that is not retriable ends all of them."""
    if len(attempts) == 1:
        return await attempts[0]()
    waiting = list(reversed(attempts))
    running: set[asyncio.Task[T]] = set()
    failures: list[FlyMQError] = []
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.get_running_loop().create_task(waiting.pop()()))
            done, running = await asyncio.wait(
                running, timeout=stagger_s if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if error is None:
                    return task.result()
                if not isinstance(error, FlyMQError) or not error.retriable:
                    raise error
                failures.append(error)
    finally:
        for task in running:
            task.cancel()
    assert failures, "there was nothing to attempt"
    raise BrokerUnavailable("; ".join(error.message for error in failures), hint=failures[0].hint)


async def unless_replaced(work: Awaitable[T], is_replaced: Callable[[], Awaitable[bool]]) -> T:
    """Wait for a broker; raise RequestTimedOut once another has taken its place. `work` is then cancelled."""
    loop = asyncio.get_running_loop()
    check: asyncio.Task[None] | None = None

    async def check_until_replaced() -> None:
        while True:
            with suppress(FlyMQError):  # no broker can be asked now
                if await is_replaced():
                    limit.reschedule(loop.time())
                    return
            await asyncio.sleep(PATIENCE_S)

    def begin_checks() -> None:  # not before, so that a usual request costs a timer and no task
        nonlocal check
        check = loop.create_task(check_until_replaced())

    try:
        async with asyncio.timeout(None) as limit:
            timer = loop.call_later(PATIENCE_S, begin_checks)
            try:
                return await work
            finally:
                timer.cancel()
                if check is not None:
                    check.cancel()
    except TimeoutError:
        raise RequestTimedOut("the broker did not answer, and another one has taken its place") from None
