"""Idempotent requests: nothing is written twice with one Idempotency-Key, and a retry gets the same response.

This has two parts. Every batch of such a request has its own producer id, which is derived from the key and the body,
so the log detects a duplicate batch, also after a restart and in other replicas. And the last responses are cached in
memory: a retry is answered without any work, and a key that is used with another body is detected.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from flymq.broker.service.records import derive_producer_id
from flymq.model.errors import IdempotencyKeyReused

KEYS_MAX = 10_000
KEPT_S = 600.0

Scope = tuple[str, str, str]
"""User, topic and key."""


class Repeatable:
    """One request with its key, from which the producer ids of its batches are derived."""

    def __init__(self, scope: Scope, body: bytes) -> None:
        self.scope = scope
        self.digest = blake2b(body, digest_size=16).digest()
        self._name = msgspec.msgpack.encode((*scope, self.digest))
        self._batches: Counter[int] = Counter()

    @property
    def partition_key(self) -> bytes:
        """Chooses the partition of records without a key: the same one in a retry."""
        return self.scope[2].encode()

    def next_producer_id(self, partition: int) -> int:
        """Return the producer id of the next batch in a partition."""
        number = self._batches[partition]
        self._batches[partition] += 1
        return derive_producer_id(self._name + msgspec.msgpack.encode((partition, number)))


@dataclass(slots=True)
class _Kept:
    digest: bytes
    until_s: float
    answer: asyncio.Future[Response]


class Answers:
    """Responses by key, oldest first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Scope, _Kept] = OrderedDict()

    async def once(
        self, request: Repeatable, now_s: float, work: Callable[[], Awaitable[Response]]
    ) -> tuple[Response, bool]:
        """Return the response for this key and whether it is cached; the first request does the work."""
        self._forget(now_s)
        scope = request.scope
        kept = self._kept.get(scope)
        if kept is not None:
            if kept.digest != request.digest:
                raise IdempotencyKeyReused(f"the key {scope[2]!r} was used with another body")
            return await asyncio.shield(kept.answer), True
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._kept[scope] = _Kept(request.digest, now_s + KEPT_S, answer)
        try:
            response = await work()
        except BaseException as error:  # a request that failed may be retried
            del self._kept[scope]
            if isinstance(error, asyncio.CancelledError):
                answer.cancel()
            else:
                answer.set_exception(error)
                answer.exception()  # mark the exception as retrieved: nobody else may be waiting
            raise
        if response.status_code != HTTPStatus.OK:  # so may one that failed in part: the log detects the other batches
            del self._kept[scope]
        answer.set_result(response)
        return response, False

    def _forget(self, now_s: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            is_full = len(self._kept) >= KEYS_MAX
            if not oldest.answer.done() or (oldest.until_s > now_s and not is_full):
                return
            self._kept.popitem(last=False)
