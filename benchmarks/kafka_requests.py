"""Kafka's Produce and Fetch as bytes, made before the load starts."""

from __future__ import annotations

from struct import Struct

from benchmarks.load import FrameSizes
from flymq.wire.kafka.apis import Api

LENGTH = Struct(">i")
_HEAD = Struct(">hhih5s")
_FETCH_OVERHEAD = 48
"""Bytes of a Fetch response of version 4 for one partition, without the topic's name and the batches."""


def request(api: Api, version: int, body: bytes) -> bytes:
    head = _HEAD.pack(api, version, 1, 5, b"bench")
    return LENGTH.pack(len(head) + len(body)) + head + body


def produce(topic: str, partition: int, batch: bytes, acks: int = 1) -> bytes:
    """Return a Produce request of version 7, which old clients and new brokers both know, with one batch."""
    where = Struct(f">ih{len(topic)}siii").pack(1, len(topic), topic.encode(), 1, partition, len(batch))
    return request(Api.PRODUCE, 7, Struct(">hhi").pack(-1, acks, 30_000) + where + batch)


def fetch(topic: str, partition: int, offset: int, bytes_max: int, wait_ms: int = 0) -> bytes:
    """Return a Fetch request of version 4."""
    head = Struct(">iiiib").pack(-1, wait_ms, 1, bytes_max, 0)
    where = Struct(f">ih{len(topic)}siiqi").pack(1, len(topic), topic.encode(), 1, partition, offset, bytes_max)
    return request(Api.FETCH, 4, head + where)


def fetch_many(offsets: dict[tuple[str, int], int], wait_ms: int = 0) -> bytes:
    """Return a Fetch request of version 4 for many partitions; those of a topic are adjacent."""
    body = [Struct(">iiiib").pack(-1, wait_ms, 1, 1 << 30, 0)]
    topics = {topic: [number for of, number in offsets if of == topic] for topic, _ in offsets}
    body.append(LENGTH.pack(len(topics)))
    for topic, numbers in topics.items():
        body.append(Struct(f">h{len(topic)}si").pack(len(topic), topic.encode(), len(numbers)))
        body += [Struct(">iqi").pack(number, offsets[topic, number], 1 << 20) for number in numbers]
    return request(Api.FETCH, 4, b"".join(body))


def fetched_bytes(topic: str, response_bytes: int) -> int:
    """Return how many bytes of batches a Fetch response for one partition has, by its size."""
    return max(0, response_bytes - _FETCH_OVERHEAD - len(topic))


def fetch_error(topic: str, response: bytes) -> int:
    """Return the error code of the one partition of a Fetch response."""
    at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
    return int.from_bytes(response[at : at + 2], "big")


def frames() -> FrameSizes:
    return FrameSizes(LENGTH.size, 0)
