"""What administration returns: topics, partitions and groups as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flymq.model.names import TopicPartition


class TopicInfo(NamedTuple):
    """One line of a list of topics."""

    name: str
    partitions: int
    replication_factor: int
    internal: bool


class PartitionInfo(NamedTuple):
    """Where a partition lives and what it holds. `end_offset` is the offset the next record will get."""

    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    start_offset: int
    end_offset: int
    size_bytes: int


class TopicDescription(NamedTuple):
    """All about one topic. `settings` has every setting, `overrides` the names of those set for this topic."""

    name: str
    topic_id: bytes
    internal: bool
    replication_factor: int
    partitions: Sequence[PartitionInfo]
    settings: Mapping[str, str | int | None]
    overrides: Sequence[str]


class BrokerInfo(NamedTuple):
    """Where a broker listens."""

    broker: int
    host: str
    port: int
    rack: str


class ClusterDescription(NamedTuple):
    """The brokers, and which of them decides."""

    cluster_id: str
    controller: int
    brokers: Sequence[BrokerInfo]


class GroupInfo(NamedTuple):
    """One line of a list of groups."""

    name: str
    state: str
    members: int


class GroupMemberInfo(NamedTuple):
    """One member of a group and what it reads."""

    member: str
    client_id: str
    host: str
    partitions: Sequence[TopicPartition]


class GroupLag(NamedTuple):
    """How far a group is behind in one partition; -1 where it is not known."""

    topic: str
    partition: int
    offset: int
    end_offset: int
    lag: int
    lag_ms: int
    member: str


class GroupDescription(NamedTuple):
    """Members, shares and lag of one group."""

    name: str
    state: str
    assignor: str
    members: Sequence[GroupMemberInfo]
    positions: Sequence[GroupLag]
