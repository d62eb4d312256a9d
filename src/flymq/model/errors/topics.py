"""Topics, partitions and offsets."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError
from flymq.model.errors.requests import InvalidTopicName


class TopicNotFound(FlyMQError):
    """There is no such topic."""

    code = "TOPIC_NOT_FOUND"
    hint = "Create it with `flymq topic create NAME`, or enable `topics.auto_create`."


class TopicExists(FlyMQError):
    """A topic with this name already exists."""

    code = "TOPIC_EXISTS"
    hint = "Use another name, or alter the existing topic."


class TopicIsInternal(InvalidTopicName):
    """The topic is internal: only the broker writes it."""

    code = "INTERNAL_TOPIC"
    hint = "Use a topic whose name does not begin with `__`."


class PartitionNotFound(FlyMQError):
    """The topic has no such partition."""

    code = "PARTITION_NOT_FOUND"
    hint = "`flymq topic describe NAME` lists the partitions; they are numbered from 0."


class NotLeader(FlyMQError):
    """This broker is not the leader of the partition."""

    code = "NOT_LEADER"
    retriable = True
    hint = "Refresh the metadata and send the request to the leader."


class TopicIdNotFound(TopicNotFound):
    """There is no topic with this id; it may have been deleted."""

    code = "TOPIC_ID_NOT_FOUND"
    retriable = True
    hint = "Refresh the metadata: a topic that was deleted and recreated has a new id."


class FencedLeaderEpoch(FlyMQError):
    """The leader epoch of the request is older than the broker's."""

    code = "FENCED_LEADER_EPOCH"
    retriable = True
    hint = "Refresh the metadata and validate the position with the new leader."


class UnknownLeaderEpoch(FlyMQError):
    """The leader epoch of the request is newer than the broker's."""

    code = "UNKNOWN_LEADER_EPOCH"
    retriable = True
    hint = "Retry; the broker has not seen the new leader yet."


class OffsetNotAvailable(FlyMQError):
    """The broker does not know yet whether records up to this offset are committed."""

    code = "OFFSET_NOT_AVAILABLE"
    retriable = True
    hint = "Retry after a short wait: a new leader, or a follower, knows it soon."


class OffsetOutOfRange(FlyMQError):
    """The offset is not in the log."""

    code = "OFFSET_OUT_OF_RANGE"
    hint = "Reset to the earliest or latest offset; older records may have been deleted by retention."


class RecordNotFound(FlyMQError):
    """There is no record at this offset."""

    code = "RECORD_NOT_FOUND"
    hint = "The offset is a transaction marker, an aborted record or one removed by compaction; read the next offset."


class NotEnoughReplicas(FlyMQError):
    """Fewer replicas are in sync than `min.insync.replicas`."""

    code = "NOT_ENOUGH_REPLICAS"
    retriable = True
    hint = "Restart the missing brokers, or lower the topic's `min.insync.replicas`."


class NotEnoughReplicasAfterAppend(NotEnoughReplicas):
    """The records are in the leader's log, but too few replicas were left in sync to commit them."""

    code = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidReplicaAssignment(FlyMQError):
    """Replicas cannot be on these brokers."""

    code = "INVALID_REPLICA_ASSIGNMENT"
    hint = "Name brokers of the cluster, each once; `flymq cluster status` shows them."


class NoReassignmentInProgress(FlyMQError):
    """There is no reassignment that could be cancelled."""

    code = "NO_REASSIGNMENT_IN_PROGRESS"
    hint = "It may have ended already; nothing has to be done."


class ElectionNotNeeded(FlyMQError):
    """The partition has the leader that it should have."""

    code = "ELECTION_NOT_NEEDED"
    hint = "Nothing has to be done."


class PreferredLeaderNotAvailable(FlyMQError):
    """The preferred leader, which is the first replica, is not there or not in sync."""

    code = "PREFERRED_LEADER_NOT_AVAILABLE"
    retriable = True
    hint = "Start its broker, and wait until it is in sync."


class EligibleLeadersNotAvailable(FlyMQError):
    """No broker with a replica of the partition is there."""

    code = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    retriable = True
    hint = "Start a broker that has a replica."
