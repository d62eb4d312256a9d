"""Subscriptions and assignments of group members, in the encoding of Kafka's consumer protocol.

The broker computes the assignment for native members, the group leader does for Kafka clients. Both use this encoding,
so members of both protocols can be in one group.

    subscription   version i16 | topics [string] | user data: bytes | from 1: owned partitions | from 2: generation i32
                   | from 3: rack: nullable string
    assignment     version i16 | partitions | user data: bytes
    partitions     [topic: string, [partition: i32]]

Strings have a length of two bytes, arrays and bytes of four; all big-endian, -1 for null.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError  # noqa: N812

from flymq.model.errors import InvalidRequest
from flymq.model.names import TopicPartition, by_topic

_I16 = Struct(">h")
_I32 = Struct(">i")
_SUBSCRIPTION_VERSION = 1
_ASSIGNMENT_VERSION = 1


@dataclass(slots=True)
class Subscription:
    """The topics a member subscribes to, and the partitions it owns."""

    topics: list[str]
    owned: list[TopicPartition] = field(default_factory=list)
    user_data: bytes = b""


def encode_subscription(subscription: Subscription) -> bytes:
    parts = [_I16.pack(_SUBSCRIPTION_VERSION), _I32.pack(len(subscription.topics))]
    parts += [_string(topic) for topic in subscription.topics]
    parts += [_bytes(subscription.user_data), _partitions(subscription.owned)]
    return b"".join(parts)


def understand(raw: bytes) -> Subscription:
    """Parse a subscription; an empty one if the encoding is unknown to the broker, which then only passes it on."""
    try:
        return parse_subscription(raw)
    except InvalidRequest:
        return Subscription([])


def parse_subscription(raw: bytes) -> Subscription:
    """Parse a subscription of any version; raise `InvalidRequest` if it is invalid."""
    reader = _Reader(raw)
    version = reader.i16()
    topics = [reader.string() for _ in range(reader.count())]
    user_data = reader.blob()
    owned = reader.partitions() if version >= 1 else []
    return Subscription(topics, owned, user_data)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return _I16.pack(_ASSIGNMENT_VERSION) + _partitions(partitions) + _bytes(b"")


def parse_assignment(raw: bytes) -> list[TopicPartition]:
    """Parse an assignment; raise `InvalidRequest` if it is invalid. No bytes are an empty assignment."""
    if not raw:
        return []
    reader = _Reader(raw)
    reader.i16()
    return reader.partitions()


def has_user_data(raw: bytes) -> bool:
    """Return whether a custom assignor has added data of its own to an assignment."""
    if not raw:
        return False
    reader = _Reader(raw)
    reader.i16()
    reader.partitions()
    return bool(reader.blob())


def understand_assignment(raw: bytes) -> list[TopicPartition]:
    """Parse an assignment; an empty one if the encoding is unknown to the broker."""
    try:
        return parse_assignment(raw)
    except InvalidRequest:
        return []


def _string(text: str) -> bytes:
    raw = text.encode()
    return _I16.pack(len(raw)) + raw


def _bytes(raw: bytes) -> bytes:
    return _I32.pack(len(raw)) + raw


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics = by_topic(partitions)
    parts = [_I32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += [_string(topic), _I32.pack(len(numbers)), *map(_I32.pack, numbers)]
    return b"".join(parts)


class _Reader:
    """Reads values sequentially; raises `InvalidRequest` at the end of the bytes."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def i16(self) -> int:
        return self._unpack(_I16)

    def i32(self) -> int:
        return self._unpack(_I32)

    def count(self) -> int:
        """Read an array length. One that is too large is rejected before use: an element has at least two bytes."""
        count = max(0, self.i32())
        if count > (len(self._raw) - self._at) // 2:
            raise InvalidRequest(f"member metadata: an array of {count} elements is truncated")
        return count

    def string(self) -> str:
        try:
            return self._take(max(0, self.i16())).decode()
        except UnicodeDecodeError:
            raise InvalidRequest("member metadata: a name is not UTF-8") from None

    def blob(self) -> bytes:
        return self._take(max(0, self.i32()))

    def partitions(self) -> list[TopicPartition]:
        found = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.i32()) for _ in range(self.count())]
        return found

    def _unpack(self, form: Struct) -> int:
        try:
            value: int = form.unpack_from(self._raw, self._at)[0]
        except StructError:
            raise InvalidRequest("member metadata is truncated") from None
        self._at += form.size
        return value

    def _take(self, size: int) -> bytes:
        taken = self._raw[self._at : self._at + size]
        if len(taken) < size:
            raise InvalidRequest("member metadata is truncated")
        self._at += size
        return taken
