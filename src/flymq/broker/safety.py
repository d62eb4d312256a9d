"""Acknowledgement of writes: a future, or None if the write is acknowledged already."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from flymq.host.prompt_future import PromptFuture
from flymq.model.errors import FlyMQError

Unsafe = asyncio.Future[None] | PromptFuture[None]
Safe = Unsafe | None
"""Done when a write is as durable as its acks require; None if it is already."""


def all_safe(each: Iterable[Safe]) -> Safe:
    """Return a future of all of these; it fails with the first that fails."""
    unsafe = [safe for safe in each if safe is not None]
    if len(unsafe) < 2:
        return unsafe[0] if unsafe else None
    together: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(unsafe)

    def done(future: Unsafe) -> None:
        nonlocal left
        left -= 1
        if together.done():
            if not future.cancelled():
                future.exception()  # mark the exception as retrieved: the first one was reported
        elif future.cancelled():  # the broker is stopping; the outcome is unknown
            together.cancel()
        elif (error := future.exception()) is not None:
            together.set_exception(error)
        elif left == 0:
            together.set_result(None)

    for future in unsafe:
        future.add_done_callback(done)
    return together


def outcome_of(safe: Unsafe) -> asyncio.Future[FlyMQError | None]:
    """Return a future of the error of a write, or of None: for a response that has errors in its parts."""
    outcome: asyncio.Future[FlyMQError | None] = asyncio.get_running_loop().create_future()

    def done(future: Unsafe) -> None:
        if outcome.done():
            return
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            outcome.cancel()
        elif error is None or isinstance(error, FlyMQError):
            outcome.set_result(error)
        else:
            outcome.set_exception(error)

    safe.add_done_callback(done)
    return outcome


async def wait_safe(safe: Safe) -> None:
    if safe is not None:
        await safe
