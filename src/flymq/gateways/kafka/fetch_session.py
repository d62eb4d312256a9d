"""Fetch sessions (KIP-227): the partitions a client reads are kept between its fetches.

A session belongs to one connection. The client opens it with epoch 0 and all partitions, and then sends only changes,
incrementing the epoch; the broker returns only partitions with changes. A client with an unknown session, as after a
reconnect, gets an error and opens another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from flymq.broker.service.records import PartitionRead
from flymq.wire.kafka.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

FULL_EPOCH = 0
FINAL_EPOCH = -1
_INT32_MAX = (1 << 31) - 1

PARTITIONS_MAX = 20_000
"""As many as one request may have. A session with more is closed: it would grow with every request."""

TopicKey = str | bytes
"""A topic's name, or, since version 13, its id."""


@dataclass(slots=True)
class Wanted:
    """One partition of the session, and what was last sent about it."""

    topic: TopicKey
    request: FetchPartition
    high_watermark: int = -1
    start_offset: int = -1

    @property
    def key(self) -> tuple[TopicKey, int]:
        return self.topic, self.request.partition

    def is_news(self, read: PartitionRead) -> bool:
        """Whether this read must be in the response."""
        return (
            read.slice is not None
            or read.error is not None
            or read.high_watermark != self.high_watermark
            or read.start_offset != self.start_offset
        )


@dataclass(slots=True)
class FetchSession:
    session_id: int
    epoch: int = 1
    """The epoch expected in the next request."""
    partitions: dict[tuple[TopicKey, int], Wanted] = field(default_factory=dict)
    """In the order in which they are read: the partition that returned data last comes last."""

    def change(self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic]) -> None:
        """Apply the changes of a request."""
        for topic in forgotten:
            for partition in topic.partitions:
                self.partitions.pop((topic.topic or topic.topic_id, partition), None)
        for wanted in flatten(topics):
            known = self.partitions.setdefault(wanted.key, wanted)
            known.request = wanted.request

    def advance(self) -> None:
        self.epoch = self.epoch % _INT32_MAX + 1

    def told(self, wanted: Wanted, read: PartitionRead) -> None:
        """Note what is sent with this response."""
        wanted.high_watermark, wanted.start_offset = read.high_watermark, read.start_offset
        if read.slice is not None and self.partitions.get(wanted.key) is wanted:
            del self.partitions[wanted.key]
            self.partitions[wanted.key] = wanted


def distinct(topics: Iterable[FetchTopic]) -> list[Wanted]:
    """Return each partition of a request once: the last that was asked about it."""
    return list({wanted.key: wanted for wanted in flatten(topics)}.values())


def next_session(last: FetchSession | None) -> FetchSession:
    return FetchSession(1 if last is None else last.session_id % _INT32_MAX + 1)


def flatten(topics: Iterable[FetchTopic]) -> Iterator[Wanted]:
    for topic in topics:
        for partition in topic.partitions:
            yield Wanted(topic.topic or topic.topic_id, partition)
