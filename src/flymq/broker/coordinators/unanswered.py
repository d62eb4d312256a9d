"""Requests of members that wait for their response: for other members, for the group leader, or for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flymq.broker.safety import Safe
from flymq.coordination.entries import MemberValue
from flymq.model.errors import FlyMQError

T = TypeVar("T")


@dataclass(slots=True)
class Joined:
    """The response to a join: membership in a generation."""

    member_id: str
    generation: int
    kind: str
    protocol: str
    leader: str
    assigns: bool
    """Whether this member has to compute the assignment."""
    members: Sequence[MemberValue] = ()
    """All members, if this one computes the assignment."""


@dataclass(slots=True)
class Unanswered:
    """Requests of one group that wait for their response."""

    joins: dict[str, asyncio.Future[Joined]] = field(default_factory=dict)
    syncs: dict[str, asyncio.Future[bytes]] = field(default_factory=dict)

    def fail_all(self, error: FlyMQError) -> None:
        for join in take_all(self.joins):
            fail(join, error)
        for sync in take_all(self.syncs):
            fail(sync, error)


def resolve(answer: asyncio.Future[T], safe: Safe, result: T) -> None:
    """Respond once the state behind the response is durable."""

    def done(future: asyncio.Future[Any]) -> None:
        if answer.done():
            return
        if future.cancelled():
            answer.cancel()
        elif (error := future.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    if safe is not None:
        safe.add_done_callback(done)
    elif not answer.done():
        answer.set_result(result)


def answer_when_safe(safe: Safe, result: T) -> asyncio.Future[T]:
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    resolve(answer, safe, result)
    return answer


def fail(answer: asyncio.Future[Any] | None, error: FlyMQError) -> None:
    if answer is not None and not answer.done():
        answer.set_exception(error)


def take_all(futures: dict[str, asyncio.Future[T]]) -> list[asyncio.Future[T]]:
    taken = list(futures.values())
    futures.clear()
    return taken
