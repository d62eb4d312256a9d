"""Answers that wait for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

Later = asyncio.Future[Any]


def when_done(waiting: Sequence[asyncio.Future[None]], answer: Any) -> Later:
    """Return a future that has `answer` when all of `waiting` are done."""
    result: Later = asyncio.get_running_loop().create_future()
    left = len(waiting)

    def done(future: asyncio.Future[None]) -> None:
        nonlocal left
        left -= 1
        if result.done():
            return
        if future.cancelled():  # the broker stops; nobody can say whether it was in time
            result.cancel()
        elif (error := future.exception()) is not None:
            result.set_exception(error)
        elif left == 0:
            result.set_result(answer)

    for future in waiting:
        future.add_done_callback(done)
    return result
