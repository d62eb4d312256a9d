"""Topics and brokers."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from flymq.wire.native.messages.fields import (
    EMPTY,
    I32,
    I64,
    NO_EPOCH,
    U16,
    U32,
    Bin,
    Failure,
    Many,
    Message,
    Part,
    Request,
)

NO_BROKER = -1

Settings = Annotated[dict[str, str | int | float | None], Meta(max_length=1_000)]


class CreateTopic(Request):
    """Create a topic; 0 means the broker's default."""

    topic: str
    partitions: U32 = 0
    replication_factor: U16 = 0
    settings: Settings = {}
    validate_only: bool = False


class CreateTopicAnswer(Message):
    """The created topic."""

    topic: str
    topic_id: Bin = EMPTY
    partitions: U32 = 0
    replication_factor: U16 = 0


class DeleteTopic(Request):
    """Delete a topic and its records."""

    topic: str


class ListTopics(Request):
    """List the topics; internal ones only if requested."""

    internal: bool = False


class TopicSummary(Part):
    """One entry of a list of topics."""

    topic: str
    partitions: U32
    replication_factor: U16 = 1
    internal: bool = False


class ListTopicsAnswer(Message):
    """Topics, sorted by name."""

    topics: list[TopicSummary]


class DescribeTopic(Request):
    """Describe one topic."""

    topic: str


class PartitionDescription(Part):
    """The replicas and offsets of a partition."""

    partition: U32
    leader: I32 = NO_BROKER
    leader_epoch: I32 = NO_EPOCH
    replicas: list[I32] = []
    isr: list[I32] = []
    start_offset: I64 = 0
    end_offset: I64 = 0
    size_bytes: I64 = 0
    problem: str = ""
    elr: list[I32] = []
    adding: list[I32] = []
    removing: list[I32] = []


class DescribeTopicAnswer(Message):
    """The description of a topic. `settings` has all effective values, `overrides` the names set for this topic."""

    topic: str
    partitions: list[PartitionDescription]
    topic_id: Bin = EMPTY
    internal: bool = False
    replication_factor: U16 = 1
    settings: Settings = {}
    overrides: list[str] = []


class AlterTopic(Request):
    """Change settings; null resets one to its default."""

    topic: str
    settings: Settings
    validate_only: bool = False


class AddPartitions(Request):
    """Increase the number of partitions to `partitions`."""

    topic: str
    partitions: U32


class PlaceReplicas(Request):
    """Begin to move the replicas of a topic."""

    topic: str
    replication_factor: U16 = 0
    brokers: Many[I32] = []


class Metadata(Request):
    """Partition leaders. `topics` null requests all; `auto_create` creates missing ones if the broker allows it."""

    topics: Many[str] | None = None
    auto_create: bool = False


class BrokerAddress(Part):
    """The address of a broker."""

    broker: I32
    host: str
    port: U16
    rack: str = ""


class PartitionMetadata(Part):
    """The leader of a partition; -1 if there is none."""

    partition: U32
    leader: I32 = NO_BROKER
    leader_epoch: I32 = NO_EPOCH
    replicas: list[I32] = []
    isr: list[I32] = []


class TopicMetadata(Part):
    """The partitions of one topic, or an error."""

    topic: str
    topic_id: Bin = EMPTY
    internal: bool = False
    error: Failure | None = None
    partitions: list[PartitionMetadata] = []
    message_bytes_max: U32 = 1 << 20


class MetadataAnswer(Message):
    """The cluster metadata of this broker."""

    cluster_id: str
    brokers: list[BrokerAddress]
    topics: list[TopicMetadata]
    controller: I32 = NO_BROKER


class DescribeCluster(Request):
    """Describe the brokers, and the partitions that are not as they should be."""


class BrokerState(Part):
    """A broker that is registered. One that is not live is fenced, or has not joined yet."""

    broker: I32
    host: str
    port: U16
    rack: str = ""
    live: bool = True
    draining: bool = False


class ReplicaLag(Part):
    """How far a replica is behind. `records` -1: unknown; `behind_ms`: since when it has not had everything."""

    broker: I32
    records: I64 = -1
    behind_ms: I64 = -1


class PartitionProblem(Part):
    """A partition without a leader, or with fewer in-sync replicas than replicas."""

    topic: str
    partition: U32
    leader: I32 = NO_BROKER
    replicas: list[I32] = []
    isr: list[I32] = []
    elr: list[I32] = []
    min_isr: U16 = 1
    lags: list[ReplicaLag] = []


class DescribeClusterAnswer(Message):
    """The state of the cluster. Problems are sorted by topic and partition; at most 1,000 are listed."""

    cluster_id: str
    brokers: list[BrokerState]
    controller: I32 = NO_BROKER
    topics: U32 = 0
    partitions: U32 = 0
    offline: U32 = 0
    under_replicated: U32 = 0
    under_min_isr: U32 = 0
    problems: list[PartitionProblem] = []
