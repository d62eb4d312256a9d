"""Which of a log's oldest segments have expired. Only whole segments: a record may stay longer, never shorter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flymq.model.topic_config import UNLIMITED, TopicConfig


class Aged(Protocol):
    """Something with a size and a latest time."""

    @property
    def size(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...


def count_expired(oldest_first: Sequence[Aged], config: TopicConfig, now_ms: int, *, beside_bytes: int = 0) -> int:
    """Return how many of the oldest segments are too old, or too many bytes together with `beside_bytes`."""
    if not config.cleanup_policy.deletes:
        return 0
    return max(_too_old(oldest_first, config, now_ms), _too_large(oldest_first, config, beside_bytes))


def _too_old(oldest_first: Sequence[Aged], config: TopicConfig, now_ms: int) -> int:
    if config.retention_ms == UNLIMITED:
        return 0
    for count, segment in enumerate(oldest_first):
        # The age of a segment without any timestamp (-1) is unknown, so only size counts. One that compaction has
        # emptied is removed with its neighbours.
        if segment.size and (segment.max_timestamp < 0 or now_ms - segment.max_timestamp <= config.retention_ms):
            return count
    return len(oldest_first)


def _too_large(oldest_first: Sequence[Aged], config: TopicConfig, beside_bytes: int) -> int:
    if config.retention_bytes == UNLIMITED:
        return 0
    excess = sum(segment.size for segment in oldest_first) + beside_bytes - config.retention_bytes
    for count, segment in enumerate(oldest_first):
        if excess < segment.size:  # removing it would leave less than what is promised
            return count
        excess -= segment.size
    return len(oldest_first)
