"""Topics, partitions and offsets."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError
from flymq.model.errors.requests import InvalidTopicName


class TopicNotFound(FlyMQError):
    """There is no such topic."""

    code = "TOPIC_NOT_FOUND"
    hint = "Create it with `flymq topic create NAME`, or turn on `topics.auto_create`."


class TopicExists(FlyMQError):
    """A topic of this name exists already."""

    code = "TOPIC_EXISTS"
    hint = "Use another name, or alter the existing topic."


class TopicIsInternal(InvalidTopicName):
    """The topic is internal: only the broker writes it."""

    code = "INTERNAL_TOPIC"
    hint = "Use a topic whose name does not begin with `__`."


class PartitionNotFound(FlyMQError):
    """The topic has no such partition."""

    code = "PARTITION_NOT_FOUND"
    hint = "`flymq topic describe NAME` lists the partitions; they count from 0."


class NotLeader(FlyMQError):
    """This broker does not lead the partition."""

    code = "NOT_LEADER"
    retriable = True
    hint = "Refresh the metadata and ask the leader."


class TopicIdNotFound(TopicNotFound):
    """There is no topic of this id, or no longer."""

    code = "TOPIC_ID_NOT_FOUND"
    retriable = True
    hint = "Refresh the metadata: a topic that was deleted and created again has another id."


class FencedLeaderEpoch(FlyMQError):
    """The client knows an older leader of the partition."""

    code = "FENCED_LEADER_EPOCH"
    retriable = True
    hint = "Refresh the metadata and check the position against the new leader."


class UnknownLeaderEpoch(FlyMQError):
    """The client knows a newer leader of the partition than this broker does."""

    code = "UNKNOWN_LEADER_EPOCH"
    retriable = True
    hint = "Try again; the broker is about to learn of the new leader."


class OffsetOutOfRange(FlyMQError):
    """The log holds no such offset."""

    code = "OFFSET_OUT_OF_RANGE"
    hint = "Ask for the earliest or latest offset; older records may have been removed by retention."


class RecordNotFound(FlyMQError):
    """There is no record at this offset."""

    code = "RECORD_NOT_FOUND"
    hint = "The offset holds a transaction marker, an aborted record or one removed by compaction; read the next one."


class NotEnoughReplicas(FlyMQError):
    """Fewer replicas are in sync than the topic asks for."""

    code = "NOT_ENOUGH_REPLICAS"
    retriable = True
    hint = "Bring the missing brokers back, or lower the topic's `min.insync.replicas`."
