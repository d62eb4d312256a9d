"""Records as users see them: where one was written, and what was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from flymq.record.record import Header, Record

NO_TIMESTAMP = -1


class RecordMetadata(int):
    """Where a record was written. It is an `int`, the offset, so it can be compared, printed and calculated with."""

    topic: str
    partition: int
    timestamp: int
    """Milliseconds since 1970."""

    def __new__(cls, offset: int, topic: str, partition: int, timestamp: int = NO_TIMESTAMP) -> RecordMetadata:
        self = super().__new__(cls, offset)
        self.topic = topic
        self.partition = partition
        self.timestamp = timestamp
        return self

    @property
    def offset(self) -> int:
        return int(self)

    def __getnewargs__(self) -> tuple[int, str, int, int]:  # type: ignore[override]
        return int(self), self.topic, self.partition, self.timestamp

    def __repr__(self) -> str:
        return (
            f"RecordMetadata(topic={self.topic!r}, partition={self.partition}, offset={int(self)}, "
            f"timestamp={self.timestamp})"
        )

    def __str__(self) -> str:
        return str(int(self))


class ConsumerRecord(msgspec.Struct, frozen=True, gc=False):
    """One record that was read.

    A struct the garbage collector does not track: it cannot lead back to itself, and a reader has very many of them. A
    named tuple takes five times as long to make.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: Any
    value: Any
    headers: Sequence[Header] = ()


def consumer_records(topic: str, partition: int, records: Iterable[Record]) -> list[ConsumerRecord]:
    """Return `records` as users see them. Hot path, runs for every record read: nothing but the constructor."""
    return [
        ConsumerRecord(topic, partition, record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        for record in records
    ]
