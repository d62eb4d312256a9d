"""What the metadata store knows of topics, and in which form.

    t/<topic>                 TopicEntry: id, number of partitions, settings
    p/<topic id>/<partition>  PartitionEntry: who leads, who follows
    gone/<topic id>           name of a deleted topic whose files are still to be removed
    pid/next                  first producer id that was never given out
    cluster                   id of the cluster, given at its first start

A topic exists when `t/<topic>` does: partitions are written before it and removed after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar
from uuid import UUID

import msgspec

from flymq.metadata.store import (
    TXN_OPS_MAX,
    Delete,
    DeletePrefix,
    Get,
    MetadataStore,
    Put,
    has_value,
    is_absent,
    modified_at,
)
from flymq.model.errors import TopicExists, TopicNotFound

Settings = dict[str, str | int]
T = TypeVar("T")

PRODUCER_IDS_PER_BLOCK = 1000


class TopicEntry(msgspec.Struct, frozen=True):
    topic_id: UUID
    partitions: int
    replication_factor: int = 1
    settings: Settings = {}


class PartitionEntry(msgspec.Struct, frozen=True):
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]


class Catalog:
    """Reads and writes the entries. Every change is one txn that either happens as a whole or raises."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def topics(self) -> dict[str, TopicEntry]:
        snapshot = await self._store.range("t/")
        return {e.key.removeprefix("t/"): msgspec.json.decode(e.value, type=TopicEntry) for e in snapshot.entries}

    async def partitions(self) -> dict[tuple[UUID, int], PartitionEntry]:
        found = {}
        for entry in (await self._store.range("p/")).entries:
            _, topic_id, partition = entry.key.split("/")
            found[UUID(topic_id), int(partition)] = msgspec.json.decode(entry.value, type=PartitionEntry)
        return found

    async def create(self, topic: str, entry: TopicEntry, partitions: Sequence[PartitionEntry]) -> None:
        await self._put_partitions(entry.topic_id, 0, partitions)
        result = await self._store.txn([is_absent(f"t/{topic}")], [_put(f"t/{topic}", entry)])
        if not result.succeeded:
            await self._store.txn(success=[DeletePrefix(f"p/{entry.topic_id}/")])
            raise TopicExists(f"the topic {topic!r} exists already")

    async def add_partitions(
        self, topic: str, old: TopicEntry, new: TopicEntry, partitions: Sequence[PartitionEntry]
    ) -> None:
        await self._put_partitions(new.topic_id, old.partitions, partitions)
        await self.replace(topic, old, new)

    async def replace(self, topic: str, old: TopicEntry, new: TopicEntry) -> None:
        """Change a topic, unless somebody else was faster."""
        result = await self._store.txn([has_value(f"t/{topic}", _encode(old))], [_put(f"t/{topic}", new)])
        if not result.succeeded:
            raise TopicNotFound(f"the topic {topic!r} was changed or deleted at the same time; look again")

    async def set_leader_epochs(self, entries: dict[tuple[UUID, int], PartitionEntry]) -> None:
        puts = [_put(f"p/{topic_id}/{partition}", entry) for (topic_id, partition), entry in entries.items()]
        for some in _blocks(puts):
            await self._store.txn(success=some)

    async def delete(self, topic: str, entry: TopicEntry) -> None:
        result = await self._store.txn(
            [has_value(f"t/{topic}", _encode(entry))],
            [
                Delete(f"t/{topic}"),
                DeletePrefix(f"p/{entry.topic_id}/"),
                Put(f"gone/{entry.topic_id}", topic.encode()),
            ],
        )
        if not result.succeeded:
            raise TopicNotFound(f"the topic {topic!r} was changed or deleted at the same time; look again")

    async def gone(self) -> dict[UUID, str]:
        """Deleted topics whose files may still be there."""
        snapshot = await self._store.range("gone/")
        return {UUID(e.key.removeprefix("gone/")): e.value.decode() for e in snapshot.entries}

    async def forget_gone(self, topic_id: UUID) -> None:
        await self._store.txn(success=[Delete(f"gone/{topic_id}")])

    async def cluster_id(self, proposed: str) -> str:
        """Return the cluster's id; the proposed one becomes it at the first start."""
        result = await self._store.txn(
            [is_absent("cluster")], [Put("cluster", proposed.encode())], failure=[Get("cluster")]
        )
        return proposed if result.succeeded else _found(result.found[0]).decode()

    async def take_producer_ids(self) -> range:
        """Return a block of producer ids that nobody else gets, ever."""
        while True:
            found = (await self._store.range("pid/next")).entries
            start = int(found[0].value) if found else 0
            unchanged = modified_at("pid/next", found[0].mod_revision) if found else is_absent("pid/next")
            end = start + PRODUCER_IDS_PER_BLOCK
            if (await self._store.txn([unchanged], [Put("pid/next", str(end).encode())])).succeeded:
                return range(start, end)

    async def _put_partitions(self, topic_id: UUID, first: int, partitions: Sequence[PartitionEntry]) -> None:
        puts = [_put(f"p/{topic_id}/{first + at}", entry) for at, entry in enumerate(partitions)]
        for some in _blocks(puts):
            await self._store.txn(success=some)


def _put(key: str, entry: msgspec.Struct) -> Put:
    return Put(key, _encode(entry))


def _encode(entry: msgspec.Struct) -> bytes:
    return msgspec.json.encode(entry, order="sorted")


def _blocks(puts: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield as many at a time as a txn takes."""
    for start in range(0, len(puts), TXN_OPS_MAX):
        yield puts[start : start + TXN_OPS_MAX]


def _found(entry: object) -> bytes:
    value = getattr(entry, "value", None)
    assert isinstance(value, bytes)
    return value
