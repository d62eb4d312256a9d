"""Names of topics and partitions, and their validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flymq.model.errors import InvalidTopicName

TOPIC_NAME_LENGTH_MAX = 249
_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+\Z")

INTERNAL_PREFIX = "__"
"""The prefix of internal topics."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_topic_name(name: str) -> str:
    """Return `name`, or raise `InvalidTopicName` with the reason."""
    if not name:
        raise InvalidTopicName("the topic name is empty")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicName(f"the topic name has {len(name)} characters, the limit is {TOPIC_NAME_LENGTH_MAX}")
    if name in (".", ".."):
        raise InvalidTopicName(f"{name!r} is not a valid topic name")
    if not _ALLOWED.match(name):
        raise InvalidTopicName(f"the topic name {name!r} contains an invalid character")
    return name


def collide(name: str, other: str) -> bool:
    """Whether two topic names differ in `.` and `_` alone: Kafka's metrics have `_` for both."""
    return name.replace(".", "_") == other.replace(".", "_")


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Group partitions by their topics, both in the order in which they come."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def is_internal(name: str) -> bool:
    return name.startswith(INTERNAL_PREFIX)
