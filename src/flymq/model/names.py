"""Names of topics and partitions, and what they may look like."""

from __future__ import annotations

import re
from typing import NamedTuple

from flymq.model.errors import InvalidTopicName

TOPIC_NAME_LENGTH_MAX = 249
_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+\Z")

INTERNAL_PREFIX = "__"
"""Topics whose names start so belong to the broker."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_topic_name(name: str) -> str:
    """Return `name`, or raise an error that says what is wrong with it."""
    if not name:
        raise InvalidTopicName("a topic's name must not be empty")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicName(f"a topic's name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one {len(name)}")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic must not be named {name!r}")
    if not _ALLOWED.match(name):
        raise InvalidTopicName(f"the topic name {name!r} has a character that is not allowed")
    return name


def is_internal(name: str) -> bool:
    return name.startswith(INTERNAL_PREFIX)
