"""Records as tests compare them."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from flymq import FlyMQClient


class Plain(NamedTuple):
    """All of a record but where it is."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def records_of(client: FlyMQClient, topic: str) -> list[list[Plain]]:
    """All records of a topic that a reader of committed data sees, by partition and in their order."""
    found: list[list[Plain]] = []
    for (_, partition), end in sorted(client.admin.latest_offsets(topic).items()):
        offset = client.admin.earliest_offsets(topic)[topic, partition]  # type: ignore[index]
        of_partition: list[Plain] = []
        while offset < end:
            records = client.fetch(topic, partition, offset, max_bytes=8 << 20)
            if not records:
                break  # only a marker is left
            of_partition += [Plain(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
            offset = records[-1].offset + 1
        found.append(of_partition)
    return found


def values_of(client: FlyMQClient, topic: str) -> list[bytes | None]:
    """All values of a topic, sorted."""
    return sorted((record.value for part in records_of(client, topic) for record in part), key=lambda v: v or b"")


def objects_of(client: FlyMQClient, topic: str) -> list[Any]:
    return [json.loads(value or b"null") for value in values_of(client, topic)]


def fill(client: FlyMQClient, topic: str, count: int, *, first: int = 0) -> int:
    """Write records of every kind: with and without key, value, headers. Return the time of the first one."""
    started_ms = int(time.time() * 1000) - count
    producer = client.default_producer()
    for n in range(first, first + count):
        producer.send(
            topic,
            None if n % 7 == 3 else b"value %d" % n,
            None if n % 5 == 4 else b"key %d" % (n % 20),
            partition=n % 3,
            headers=[("n", b"%d" % n), ("n", None)] if n % 3 == 0 else None,
            timestamp=started_ms + n - first,
        )
    producer.flush()
    return started_ms
