"""The keys and values of the metadata store.

    t/<topic>                 TopicSpec: id, number of partitions, overrides of settings
    p/<topic id>/<partition>  PartitionState: leader, leader epoch, replicas, in-sync replicas
    made/<topic id>           partitions whose files were created: if they are missing now, they are lost
    made/<topic id>/<dir>     the same for one data directory of a cluster
    gone/<topic id>/<broker>  name of a deleted topic whose files that broker has not removed yet
    pid/next                  the next producer id to allocate
    cluster                   id of the cluster, chosen at the first start
    adopting                  the metadata of a single broker is being copied here (adopted_metadata.py)
    s/<scope>/<name>          settings changed at run time: of all brokers (s/broker/), of one, of a group,
                              of a subscription to metrics of clients

A topic exists when `t/<topic>` does: partitions are written before it and removed with it. Every change is one
txn, and returns the revision at which it is visible, or raises. image.py reads these keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from flymq.metadata.store import (
    TXN_OPS_MAX,
    Compare,
    Delete,
    DeletePrefix,
    Get,
    MetadataStore,
    Put,
    TxnResult,
    has_value,
    is_absent,
    modified_at,
)
from flymq.model.errors import AdoptionUnfinished, MetadataUnavailable, TopicExists, TopicNotFound
from flymq.model.names import TopicPartition

TOPIC_PREFIX = "t/"
PARTITION_PREFIX = "p/"
SETTINGS_PREFIX = "s/"
MADE_PREFIX = "made/"
GONE_PREFIX = "gone/"
CLUSTER_KEY = "cluster"
PRODUCER_IDS_KEY = "pid/next"
ADOPTING_KEY = "adopting"

Overrides = dict[str, str | int | float]
"""The settings that were given for a topic; all others have the broker's defaults."""
T = TypeVar("T")

PRODUCER_IDS_PER_BLOCK = 1000
_GONE_IN_TXN_MAX = TXN_OPS_MAX - 8

NO_LEADER = -1


class TopicSpec(msgspec.Struct, frozen=True):
    """A topic as specified at its creation, and changed since."""

    topic_id: UUID
    partitions: int
    replication_factor: int = 1
    settings: Overrides = {}


class PartitionState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The leader of a partition, its leader epoch, and the brokers with its replicas.

    Fields with a default are not encoded, so that states of older versions compare equal.
    """

    leader: int
    """`NO_LEADER`: the partition is offline."""
    leader_epoch: int
    replicas: list[int]
    """The first one is the preferred leader."""
    isr: list[int]
    """In-sync replicas: each has every committed record. Never empty: who was the last of them may lead again."""
    elr: list[int] = []
    """Eligible leader replicas: they left the in-sync replicas when these were fewer than `min.insync.replicas`.
    Nothing was committed since, so each has every committed record too."""
    adding: list[int] = []
    """Those of `replicas` that a reassignment adds. It ends when they are in sync."""
    removing: list[int] = []
    """Those of `replicas` that leave when the reassignment ends."""

    @property
    def target(self) -> list[int]:
        """The replicas after the reassignment, if there is one."""
        return [broker for broker in self.replicas if broker not in self.removing] if self.removing else self.replicas


class Scope(Enum):
    """What settings that are changed at run time belong to."""

    BROKER = "broker"
    """Defaults of topics, for one broker; with an empty name for all brokers."""
    GROUP = "group"
    CLIENT_METRICS = "client_metrics"
    """A subscription to metrics of clients."""


class NewEpoch(NamedTuple):
    """The state of a partition that gets a higher leader epoch."""

    state: PartitionState
    leader_epoch: int


class Catalog:
    """Reads and writes these keys."""

    def __init__(self, store: MetadataStore, directory_id: str = "") -> None:
        """`directory_id` is that of this broker's data directory, in a cluster. The metadata of a single broker lies in
        its data directory, and needs none."""
        self._store = self.store = store
        self._directory_id = directory_id

    # --- topics

    async def create(self, topic: str, spec: TopicSpec, partitions: Sequence[PartitionState]) -> int:
        puts = [_put(partition_key(spec.topic_id, number), state) for number, state in enumerate(partitions)]
        if len(puts) >= TXN_OPS_MAX:
            await self._put_partitions(spec.topic_id, 0, partitions)
            puts = []
        result = await self._store.txn([is_absent(_topic_key(topic))], [*puts, _put(_topic_key(topic), spec)])
        if not result.succeeded:
            await self._store.txn(success=[DeletePrefix(f"{PARTITION_PREFIX}{spec.topic_id}/")])
            raise TopicExists(f"the topic {topic!r} exists already")
        return result.revision

    async def add_partitions(
        self, topic: str, old: TopicSpec, new: TopicSpec, partitions: Sequence[PartitionState]
    ) -> int:
        await self._put_partitions(
            new.topic_id, old.partitions, partitions, only_if=[has_value(_topic_key(topic), _encode(old))]
        )
        return await self.replace(topic, old, new)

    async def replace(self, topic: str, old: TopicSpec, new: TopicSpec) -> int:
        """Change a topic, unless it was changed concurrently."""
        result = await self._store.txn([has_value(_topic_key(topic), _encode(old))], [_put(_topic_key(topic), new)])
        if not result.succeeded:
            raise _changed_meanwhile(topic)
        return result.revision

    async def delete(self, topic: str, spec: TopicSpec, brokers: Collection[int] = ()) -> int:
        """Delete a topic; `brokers` have files of it, and each of them is told to remove them."""
        gone = [Put(_gone_key(spec.topic_id, broker), topic.encode()) for broker in sorted(brokers)]
        for some in _blocks(gone[_GONE_IN_TXN_MAX:]):  # before the topic goes: without effect while it exists
            await self._store.txn([has_value(_topic_key(topic), _encode(spec))], some)
        result = await self._store.txn(
            [has_value(_topic_key(topic), _encode(spec))],
            [
                Delete(_topic_key(topic)),
                DeletePrefix(f"{PARTITION_PREFIX}{spec.topic_id}/"),
                Delete(f"{MADE_PREFIX}{spec.topic_id}"),
                DeletePrefix(f"{MADE_PREFIX}{spec.topic_id}/"),
                *gone[:_GONE_IN_TXN_MAX],
            ],
        )
        if not result.succeeded:
            raise _changed_meanwhile(topic)
        return result.revision

    async def topics(self) -> dict[str, TopicSpec]:
        """Return all topics, also those that cannot be served."""
        snapshot = await self._store.range(TOPIC_PREFIX)
        return {each.key.removeprefix(TOPIC_PREFIX): parse_topic(each.value) for each in snapshot.key_values}

    async def mark_made(self, partitions: Mapping[UUID, Collection[int]]) -> None:
        """Remember which partitions of topics have files."""
        for some in _blocks(list(partitions.items())):
            await self._store.txn(
                success=[Put(self._made_key(topic_id), msgspec.json.encode(sorted(made))) for topic_id, made in some]
            )

    async def made(self) -> dict[UUID, Collection[int]]:
        """Return the partitions that have files here, by topic."""
        found: dict[UUID, Collection[int]] = {}
        for each in (await self._store.range(MADE_PREFIX)).key_values:
            topic_id, _, directory_id = each.key.removeprefix(MADE_PREFIX).partition("/")
            if directory_id == self._directory_id:
                found[UUID(topic_id)] = frozenset(msgspec.json.decode(each.value, type=list[int]))
        return found

    def _made_key(self, topic_id: UUID) -> str:
        key = f"{MADE_PREFIX}{topic_id}"
        return f"{key}/{self._directory_id}" if self._directory_id else key

    async def gone(self, broker_id: int) -> dict[UUID, str]:
        """Return the deleted topics whose files this broker may still have."""
        found: dict[UUID, str] = {}
        for each in (await self._store.range(GONE_PREFIX)).key_values:
            topic_id, _, broker = each.key.removeprefix(GONE_PREFIX).partition("/")
            if broker in ("", str(broker_id)):  # older versions knew one broker alone
                found[UUID(topic_id)] = each.value.decode()
        if found:  # of many brokers: a deletion may have been given up after some of them were told
            for spec in (await self.topics()).values():
                found.pop(spec.topic_id, None)
        return found

    async def forget_gone(self, topic_id: UUID, broker_id: int) -> None:
        """This broker has no files of a deleted topic any more."""
        await self._store.txn(success=[Delete(_gone_key(topic_id, broker_id)), Delete(f"{GONE_PREFIX}{topic_id}")])

    # --- partitions

    async def raise_leader_epochs(self, changes: Mapping[tuple[UUID, TopicPartition], NewEpoch]) -> int:
        """Raise the leader epoch of partitions, except of those that were changed concurrently."""
        revision = 0
        for some in _blocks(list(changes.items())):
            compares, puts = [], []
            for (topic_id, name), (state, epoch) in some:
                assert epoch > state.leader_epoch, f"{name}: a leader epoch never goes back"
                key = partition_key(topic_id, name.partition)
                compares.append(has_value(key, _encode(state)))
                puts.append(_put(key, msgspec.structs.replace(state, leader_epoch=epoch)))
            result = await self._store.txn(compares, puts)
            if not result.succeeded and len(some) > 1:
                for one in some:
                    revision = max(revision, await self.raise_leader_epochs(dict([one])))
            revision = max(revision, result.revision)
        return revision

    async def change_state(
        self,
        topic_id: UUID,
        partition: int,
        before: PartitionState,
        after: PartitionState,
        only_if: Sequence[Compare] = (),
    ) -> TxnResult:
        """Change the state of one partition, unless it was changed concurrently."""
        key = partition_key(topic_id, partition)
        return await self._store.txn([has_value(key, _encode(before)), *only_if], [_put(key, after)])

    async def revision(self) -> int:
        """Return the revision of the store: what is in it now is known to whoever has reached that."""
        return (await self._store.range(CLUSTER_KEY)).revision

    async def _put_partitions(
        self, topic_id: UUID, first: int, partitions: Sequence[PartitionState], only_if: Sequence[Compare] = ()
    ) -> None:
        puts = [_put(partition_key(topic_id, first + at), state) for at, state in enumerate(partitions)]
        for some in _blocks(puts):
            await self._store.txn(only_if, some)

    # --- settings changed at run time

    async def put_settings(self, scope: Scope, name: str, old: Overrides, new: Overrides) -> int:
        """Replace settings, unless they were changed concurrently. Without any left, the key is removed."""
        key = settings_key(scope, name)
        unchanged = has_value(key, msgspec.json.encode(old, order="sorted")) if old else is_absent(key)
        change = Put(key, msgspec.json.encode(new, order="sorted")) if new else Delete(key)
        result = await self._store.txn([unchanged], [change])
        if not result.succeeded:
            raise MetadataUnavailable(f"the settings of {scope.value} {name!r} were changed concurrently")
        return result.revision

    # --- the cluster

    async def cluster_id(self, proposed: str) -> str:
        """Return the cluster id; at the first start it is set to the proposed one."""
        result = await self._store.txn(
            [is_absent(CLUSTER_KEY), is_absent(ADOPTING_KEY)],
            [Put(CLUSTER_KEY, proposed.encode())],
            failure=[Get(CLUSTER_KEY)],
        )
        if result.succeeded:
            return proposed
        found = result.found[0]
        if found is None:
            raise AdoptionUnfinished("the metadata of a single broker is being copied into this metadata store")
        return found.value.decode()

    async def find_cluster_id(self) -> str | None:
        """Return the cluster id; None before the first start."""
        result = await self._store.txn(success=[Get(CLUSTER_KEY), Get(ADOPTING_KEY)])
        found, adopting = result.found
        if adopting is not None:
            raise AdoptionUnfinished("the metadata of a single broker is being copied into this metadata store")
        return None if found is None else found.value.decode()

    async def take_producer_ids(self, count: int = PRODUCER_IDS_PER_BLOCK) -> range:
        """Allocate a block of producer ids. Ids are never reused."""
        while True:
            found = (await self._store.range(PRODUCER_IDS_KEY)).key_values
            start = int(found[0].value) if found else 0
            unchanged = modified_at(PRODUCER_IDS_KEY, found[0].mod_revision) if found else is_absent(PRODUCER_IDS_KEY)
            end = start + count
            if (await self._store.txn([unchanged], [Put(PRODUCER_IDS_KEY, str(end).encode())])).succeeded:
                return range(start, end)


# --- keys and values ------------------------------------------------------------------------------------------------


def partition_key(topic_id: UUID, partition: int) -> str:
    return f"{PARTITION_PREFIX}{topic_id}/{partition}"


def parse_partition_key(key: str) -> tuple[UUID, int]:
    topic_id, _, partition = key.removeprefix(PARTITION_PREFIX).partition("/")
    return _parse_id(topic_id), int(partition)


@lru_cache(maxsize=256)
def _parse_id(topic_id: str) -> UUID:
    """The partitions of a topic follow each other, and parsing an id is the most expensive part of a key."""
    return UUID(topic_id)


def _gone_key(topic_id: UUID, broker_id: int) -> str:
    return f"{GONE_PREFIX}{topic_id}/{broker_id}"


def settings_key(scope: Scope, name: str) -> str:
    return f"{SETTINGS_PREFIX}{scope.value}/{name}"


def parse_settings(value: bytes) -> Overrides:
    return msgspec.json.decode(value, type=Overrides)


def parse_topic(value: bytes) -> TopicSpec:
    return msgspec.json.decode(value, type=TopicSpec)


def parse_partition(value: bytes) -> PartitionState:
    return msgspec.json.decode(value, type=PartitionState)


def encode_state(state: PartitionState) -> bytes:
    return _encode(state)


def _topic_key(topic: str) -> str:
    return f"{TOPIC_PREFIX}{topic}"


def _put(key: str, value: msgspec.Struct) -> Put:
    return Put(key, _encode(value))


def _encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _blocks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield blocks that fit into a txn."""
    for start in range(0, len(items), TXN_OPS_MAX):
        yield items[start : start + TXN_OPS_MAX]


def _changed_meanwhile(topic: str) -> TopicNotFound:
    return TopicNotFound(f"the topic {topic!r} was changed or deleted concurrently", hint="Try again.")
