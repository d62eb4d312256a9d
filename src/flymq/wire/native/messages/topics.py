"""Topics and the brokers that hold them."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from flymq.wire.native.messages.fields import EMPTY, I32, I64, NO_EPOCH, U16, U32, Bin, Failure, Message, Part

NO_BROKER = -1

Settings = dict[str, str | int | None]


class CreateTopic(Message):
    """A new topic; 0 leaves a number to the broker's defaults."""

    topic: str
    partitions: U32 = 0
    replication_factor: U16 = 0
    settings: Settings = {}
    validate_only: bool = False


class CreateTopicAnswer(Message):
    """What was made."""

    topic: str
    topic_id: Bin = EMPTY
    partitions: U32 = 0
    replication_factor: U16 = 0


class DeleteTopic(Message):
    """Remove a topic and its records."""

    topic: str


class ListTopics(Message):
    """All topics; the broker's own only when asked for."""

    internal: bool = False


class TopicSummary(Part):
    """One line of a list of topics."""

    topic: str
    partitions: U32
    replication_factor: U16 = 1
    internal: bool = False


class ListTopicsAnswer(Message):
    """Topics in the order of their names."""

    topics: list[TopicSummary]


class DescribeTopic(Message):
    """All about one topic."""

    topic: str


class PartitionDescription(Part):
    """Where a partition lives and what it holds."""

    partition: U32
    leader: I32 = NO_BROKER
    leader_epoch: I32 = NO_EPOCH
    replicas: list[I32] = []
    isr: list[I32] = []
    start_offset: I64 = 0
    end_offset: I64 = 0
    size_bytes: I64 = 0


class DescribeTopicAnswer(Message):
    """All about one topic. `settings` has every setting with its value in force, `overrides` the names set here."""

    topic: str
    partitions: list[PartitionDescription]
    topic_id: Bin = EMPTY
    internal: bool = False
    replication_factor: U16 = 1
    settings: Settings = {}
    overrides: list[str] = []


class AlterTopic(Message):
    """Change settings; null takes one back to its default."""

    topic: str
    settings: Settings
    validate_only: bool = False


class AddPartitions(Message):
    """Let the topic have `partitions` partitions in all."""

    topic: str
    partitions: U32


class Metadata(Message):
    """Who leads what. `topics` null asks for all; `auto_create` creates missing ones if the broker allows it."""

    topics: list[str] | None = None
    auto_create: bool = False


class BrokerAddress(Part):
    """Where a broker listens."""

    broker: I32
    host: str
    port: U16
    rack: str = ""


class PartitionMetadata(Part):
    """Who leads a partition; -1 while nobody does."""

    partition: U32
    leader: I32 = NO_BROKER
    leader_epoch: I32 = NO_EPOCH
    replicas: list[I32] = []
    isr: list[I32] = []


class TopicMetadata(Part):
    """The partitions of one topic, or why there are none."""

    topic: str
    topic_id: Bin = EMPTY
    internal: bool = False
    error: Failure | None = None
    partitions: list[PartitionMetadata] = []
    message_bytes_max: U32 = 1 << 20


class MetadataAnswer(Message):
    """The cluster as this broker sees it."""

    cluster_id: str
    brokers: list[BrokerAddress]
    topics: list[TopicMetadata]
    controller: I32 = NO_BROKER
