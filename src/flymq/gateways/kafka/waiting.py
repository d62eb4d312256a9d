"""Responses that wait for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


def when_all_done(waiting: Sequence[asyncio.Future[None]]) -> asyncio.Future[None]:
    """Return a future that is done when all of these are, however they ended."""
    result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(waiting)

    def done(_: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not result.done():
            result.set_result(None)

    for future in waiting:
        future.add_done_callback(done)
    return result
