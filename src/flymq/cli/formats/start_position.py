"""Where to start in a topic: earliest, latest, an offset, the last N records, or a timestamp."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import click

from flymq.cli.formats.units import parse_duration_ms
from flymq.host.clock import SystemClock

TAKES = "earliest, latest, an offset, -N for the last N, a time such as 2026-01-31T12:00, or a time ago such as 10m"


class Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """A start position that applies to every partition."""

    kind: Kind
    number: int = 0
    """The offset, the count of last records, or the milliseconds since 1970."""


def parse_position(text: str, *, now_ms: int) -> Position:
    """Parse a start position; `ValueError` if it is invalid. A time without a zone is local."""
    if text in (Kind.EARLIEST.value, Kind.LATEST.value):
        return Position(Kind(text))
    if text.isdecimal():
        return Position(Kind.OFFSET, int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Position(Kind.LAST, int(text[1:]))
    try:
        return Position(Kind.TIME, int(datetime.fromisoformat(text).timestamp() * 1000))
    except ValueError:
        return Position(Kind.TIME, now_ms - parse_duration_ms(text))


def position_option(_context: click.Context, _option: click.Parameter, text: str) -> Position:
    """Parse the value of an option."""
    try:
        return parse_position(text, now_ms=SystemClock().now_ms())
    except ValueError:
        raise click.BadParameter(f"{text!r} is not {TAKES}.") from None
