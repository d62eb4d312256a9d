"""Requests that may be repeated: the answer to an Idempotency-Key is given again, and nothing is written twice.

Kept in memory, so a key outlives neither a restart nor the limits below: it is for a client that tries again after a
lost connection, not for remembering what was sent yesterday. A producer that needs more uses a transactional id.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b

from starlette.responses import Response

from flymq.model.errors import IdempotencyKeyReused

KEYS_MAX = 10_000
KEPT_S = 600.0

Scope = tuple[str, str, str]
"""Who asked, for which topic, under which key."""


@dataclass(slots=True)
class _Kept:
    digest: bytes
    until_s: float
    answer: asyncio.Future[Response]


class Answers:
    """Answers by key, oldest first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Scope, _Kept] = OrderedDict()

    async def once(
        self, scope: Scope, body: bytes, now_s: float, work: Callable[[], Awaitable[Response]]
    ) -> tuple[Response, bool]:
        """Return the answer to this key and whether it is an old one; the first to come does the work."""
        self._forget(now_s)
        digest = blake2b(body, digest_size=16).digest()
        kept = self._kept.get(scope)
        if kept is not None:
            if kept.digest != digest:
                raise IdempotencyKeyReused(f"the key {scope[2]!r} was used for another body")
            return await asyncio.shield(kept.answer), True
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._kept[scope] = _Kept(digest, now_s + KEPT_S, answer)
        try:
            response = await work()
        except BaseException as error:  # what failed as a whole may be tried again
            del self._kept[scope]
            if isinstance(error, asyncio.CancelledError):
                answer.cancel()
            else:
                answer.set_exception(error)
                answer.exception()  # retrieved: nobody else may be waiting
            raise
        answer.set_result(response)
        return response, False

    def _forget(self, now_s: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            is_full = len(self._kept) >= KEYS_MAX
            if not oldest.answer.done() or (oldest.until_s > now_s and not is_full):
                return
            self._kept.popitem(last=False)
