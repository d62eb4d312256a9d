"""When what was written is safe: a future, or None when it is already. Nobody waits for it who does not want to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

Safe = asyncio.Future[None] | None
"""Done when what was written is as safe as was asked for; None when it is already."""


def all_safe(each: Iterable[Safe]) -> Safe:
    """Return when all of these are safe; it fails with the first that fails."""
    unsafe = [safe for safe in each if safe is not None]
    if len(unsafe) < 2:
        return unsafe[0] if unsafe else None
    together: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(unsafe)

    def done(future: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if together.done():
            if not future.cancelled():
                future.exception()  # retrieved: the first failure was reported
        elif future.cancelled():  # the broker stops; nobody can say whether it was in time
            together.cancel()
        elif (error := future.exception()) is not None:
            together.set_exception(error)
        elif left == 0:
            together.set_result(None)

    for future in unsafe:
        future.add_done_callback(done)
    return together


async def wait_safe(safe: Safe) -> None:
    if safe is not None:
        await safe
