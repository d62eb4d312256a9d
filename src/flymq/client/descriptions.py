"""Results of admin calls: topics, partitions and groups as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flymq.model.names import TopicPartition


class TopicInfo(NamedTuple):
    """A topic, as listed."""

    name: str
    partitions: int
    replication_factor: int
    internal: bool


class PartitionInfo(NamedTuple):
    """Replicas, offsets and size of a partition. `end_offset` is the offset of the next record to be written."""

    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    start_offset: int
    end_offset: int
    size_bytes: int
    problem: str = ""
    """Why the partition is offline; empty if it is not."""
    elr: Sequence[int] = ()
    """Eligible leader replicas: not in sync, and yet with every committed record."""
    adding: Sequence[int] = ()
    """Those of `replicas` that are being added, and have not caught up yet."""
    removing: Sequence[int] = ()
    """Those of `replicas` that leave when the others have caught up."""


class TopicDescription(NamedTuple):
    """A topic in detail. `settings` has every setting, `overrides` the names of those set for this topic."""

    name: str
    topic_id: bytes
    internal: bool
    replication_factor: int
    partitions: Sequence[PartitionInfo]
    settings: Mapping[str, str | int | float | None]
    overrides: Sequence[str]


class BrokerInfo(NamedTuple):
    """Where a broker listens."""

    broker: int
    host: str
    port: int
    rack: str


class ClusterDescription(NamedTuple):
    """The brokers, and which of them is the controller."""

    cluster_id: str
    controller: int
    brokers: Sequence[BrokerInfo]


class BrokerState(NamedTuple):
    """A registered broker. One that is not live is fenced, or has not joined yet; one that drains is about to stop."""

    broker: int
    host: str
    port: int
    rack: str
    live: bool
    draining: bool


class ReplicaLag(NamedTuple):
    """How far a replica is behind its leader, in records and since when; -1: unknown."""

    broker: int
    records: int
    behind_ms: int


class PartitionProblem(NamedTuple):
    """A partition without a leader (-1), or with fewer in-sync replicas than replicas."""

    topic: str
    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int]
    min_isr: int
    lags: Sequence[ReplicaLag]


class ClusterState(NamedTuple):
    """The brokers, how many partitions there are, and which are not as they should be."""

    cluster_id: str
    controller: int
    brokers: Sequence[BrokerState]
    topics: int
    partitions: int
    offline: int
    under_replicated: int
    under_min_isr: int
    problems: Sequence[PartitionProblem]
    """At most 1,000 of those that are offline or under-replicated."""


class GroupInfo(NamedTuple):
    """A consumer group, as listed."""

    name: str
    state: str
    members: int


class GroupMemberInfo(NamedTuple):
    """A member of a group and its assignment."""

    member: str
    client_id: str
    host: str
    partitions: Sequence[TopicPartition]


class GroupLag(NamedTuple):
    """Committed offset and lag of a group in one partition; -1 where unknown."""

    topic: str
    partition: int
    offset: int
    end_offset: int
    lag: int
    lag_ms: int
    member: str


class GroupDescription(NamedTuple):
    """Members, assignments and lag of a group."""

    name: str
    state: str
    assignor: str
    members: Sequence[GroupMemberInfo]
    positions: Sequence[GroupLag]
