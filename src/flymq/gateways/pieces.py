"""Serve a request with many elements in pieces, so that other requests are served in between.

    asked:    topics ─ partitions          answered:    topics ─ partitions
              └─ pieces of at most 100 elements; the answers are put together in the order of the request

A `Split` names the arrays on both sides. It fits requests whose elements are served one by one; what must be decided as
a whole cannot be split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CoroutineType
from typing import Any

import msgspec

from flymq.gateways.connection import AnswerLater
from flymq.host.time_slices import TimeSlice

ELEMENTS_AT_ONCE = 100
"""A few milliseconds of work for the slowest requests."""


@dataclass(frozen=True, slots=True)
class Split:
    """The nested arrays of a request, from the outermost, and those of its response."""

    asked: tuple[str, ...]
    answered: tuple[str, ...]

    def is_needed(self, request: Any) -> bool:
        """Whether the request has more elements than are served at once."""
        items: Sequence[Any] = getattr(request, self.asked[0]) or ()
        if len(items) > ELEMENTS_AT_ONCE or len(self.asked) == 1:
            return len(items) > ELEMENTS_AT_ONCE
        inner = self.asked[1]
        if len(self.asked) > 2:
            return True
        if len(items) == 1:  # as nearly always
            return len(getattr(items[0], inner) or ()) > ELEMENTS_AT_ONCE
        return sum(len(getattr(item, inner) or ()) for item in items) > ELEMENTS_AT_ONCE


async def serve_in_pieces(split: Split, request: Any, serve: Callable[[Any], Any]) -> Any:
    """Return the response of the whole request; `serve` serves a part of it."""
    outermost, *asked = split.asked
    whole = None
    turn = TimeSlice()
    for part, depth in pieces(getattr(request, outermost), asked):
        answer = serve(msgspec.structs.replace(request, **{outermost: part}))
        if isinstance(answer, AnswerLater):
            answer = answer.answer(await answer.awaited)
        elif isinstance(answer, CoroutineType):
            answer = await answer
        if whole is None:
            whole = answer
        elif answer is not None:
            first, *answered = split.answered
            _add(getattr(whole, first), getattr(answer, first), answered, depth)
        await turn.yield_if_over()
    return whole


def pieces(items: Sequence[Any], inner: Sequence[str]) -> Iterator[tuple[list[Any], int]]:
    """Yield parts of `items`, whose nested arrays are named by `inner`.

    An item with too many elements is itself split. Each part comes with the number of levels at which its first item
    continues the last one of the part before.
    """
    if not inner:
        for first in range(0, len(items), ELEMENTS_AT_ONCE):
            yield list(items[first : first + ELEMENTS_AT_ONCE]), 0
        return
    name, *deeper = inner
    part: list[Any] = []
    weight = 0
    for item in items:
        elements = getattr(item, name) or ()
        if len(elements) > ELEMENTS_AT_ONCE or (deeper and elements):
            if part:
                yield part, 0
                part, weight = [], 0
            for number, (some, depth) in enumerate(pieces(elements, deeper)):
                yield [msgspec.structs.replace(item, **{name: some})], depth + 1 if number else 0
            continue
        if part and weight + len(elements) + 1 > ELEMENTS_AT_ONCE:
            yield part, 0
            part, weight = [], 0
        part.append(item)
        weight += len(elements) + 1
    if part:
        yield part, 0


def _add(whole: list[Any], part: list[Any], inner: Sequence[str], depth: int) -> None:
    """Append the answers of one part."""
    if depth and inner and whole and part:
        _add(getattr(whole[-1], inner[0]), getattr(part[0], inner[0]), inner[1:], depth - 1)
        part = part[1:]
    whole += part
