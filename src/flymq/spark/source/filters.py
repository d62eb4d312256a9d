"""Filter pushdown for topic, partition, offset and timestamp. No I/O here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from flymq.model.names import TopicPartition
from flymq.spark.source.offsets import Offsets

_UNBOUNDED = (1 << 63) - 1


class Bounds:
    """Bounds of the records that can match the filters; records outside need not be read.

    All are half-open. Filters on other columns, or of an unsupported kind, do not change the bounds.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] | None = None
        self.partition = (0, _UNBOUNDED)
        self.offset = (0, _UNBOUNDED)
        self.time_ms = (0, _UNBOUNDED)

    def narrow(self, filter_: Filter) -> None:
        """Narrow the bounds by one more filter."""
        path: tuple[str, ...] = getattr(filter_, "attribute", ())
        value = getattr(filter_, "value", None)
        if len(path) != 1 or value is None:
            return
        [name] = path
        if name == "topic":
            self._narrow_topics(filter_, value)
        elif name in ("partition", "offset", "timestamp"):
            field = "time_ms" if name == "timestamp" else name
            number = _milliseconds if name == "timestamp" else int
            setattr(self, field, _narrowed(getattr(self, field), filter_, value, number))

    def _narrow_topics(self, filter_: Filter, value: Any) -> None:
        if isinstance(filter_, EqualTo | EqualNullSafe):
            named = frozenset([value])
        elif isinstance(filter_, In):
            named = frozenset(value)
        else:
            return
        self.topics = named if self.topics is None else self.topics & named

    def has(self, name: TopicPartition) -> bool:
        """Whether records of this partition can match."""
        low, high = self.partition
        return low <= name.partition < high and (self.topics is None or name.topic in self.topics)

    def clip(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Return the part of this offset range that can match, by the filters on partitions and offsets."""
        low, high = self.offset
        names = [name for name in start if self.has(name)]
        return {name: max(start[name], low) for name in names}, {name: min(end[name], high) for name in names}


def _narrowed(bounds: tuple[int, int], filter_: Filter, value: Any, number: Callable[[Any], int]) -> tuple[int, int]:
    low, high = bounds
    match filter_:
        case EqualTo() | EqualNullSafe():
            return max(low, number(value)), min(high, number(value) + 1)
        case (
            GreaterThan() | GreaterThanOrEqual()
        ):  # timestamps are truncated to milliseconds, so "greater" may still be equal
            is_exact = isinstance(filter_, GreaterThan) and number is int
            return max(low, number(value) + is_exact), high
        case LessThan() | LessThanOrEqual():
            is_exact = isinstance(filter_, LessThan) and number is int
            return low, min(high, number(value) + (not is_exact))
        case In():
            found = [number(item) for item in value if item is not None]
            return (max(low, min(found)), min(high, max(found) + 1)) if found else (0, 0)
        case _:
            return bounds


def _milliseconds(time: datetime) -> int:
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return max(0, int(aware.timestamp() * 1000))
