"""Consumer groups."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError
from flymq.model.errors.requests import InvalidRequest


class GroupNotFound(FlyMQError):
    """There is no such consumer group."""

    code = "GROUP_NOT_FOUND"
    hint = "`flymq group list` lists the groups; a group exists once a member has joined or an offset was committed."


class UnknownMember(FlyMQError):
    """The group has no such member; it may have been removed."""

    code = "UNKNOWN_MEMBER"
    hint = "A member without a heartbeat for its session timeout is removed; it must rejoin as a new member."


class StaleGeneration(FlyMQError):
    """The group has rebalanced since: this generation has ended, and its partitions may belong to other members."""

    code = "STALE_GENERATION"
    hint = "Rejoin the group; commit only offsets of partitions in the new assignment."


class RebalanceInProgress(FlyMQError):
    """The group is rebalancing."""

    code = "REBALANCE_IN_PROGRESS"
    retriable = True
    hint = "Rejoin the group to get the new assignment."


class MemberIdRequired(FlyMQError):
    """A new member must join with the id that the group has given it, `member_id`."""

    code = "MEMBER_ID_REQUIRED"
    retriable = True
    hint = "Rejoin with the member id from the response."
    member_id: str = ""


class MemberFenced(FlyMQError):
    """Another member with the same group instance id has replaced this one."""

    code = "MEMBER_FENCED"
    hint = "Stop this member, or use a different group instance id for each member."


class InconsistentAssignors(FlyMQError):
    """The member and the rest of the group have no assignor in common."""

    code = "INCONSISTENT_ASSIGNORS"
    hint = "Configure at least one common assignor for all members of the group."


class InvalidSessionTimeout(InvalidRequest):
    """The session timeout is out of range."""

    code = "INVALID_SESSION_TIMEOUT"
    hint = "The message gives the limits."


class GroupFull(FlyMQError):
    """The group has reached its maximum number of members."""

    code = "GROUP_FULL"
    hint = "Use fewer members; those beyond the number of partitions would be idle."


class GroupNotEmpty(FlyMQError):
    """The group still has members."""

    code = "GROUP_NOT_EMPTY"
    hint = "Stop all members of the group first."


class OffsetMetadataTooLarge(FlyMQError):
    """The metadata of a committed offset is too long."""

    code = "OFFSET_METADATA_TOO_LARGE"
    hint = "Commit offsets with shorter metadata."


class UnstableOffsets(FlyMQError):
    """A pending transaction may commit an offset for this partition."""

    code = "UNSTABLE_OFFSETS"
    retriable = True
    hint = "Retry once the transaction has ended."


class MemberEpochFenced(FlyMQError):
    """The member epoch does not match the group's: the member's partitions may belong to other members."""

    code = "MEMBER_EPOCH_FENCED"
    hint = "Give up all partitions and rejoin with epoch 0."


class StaleMemberEpoch(FlyMQError):
    """The member epoch of the request is no longer the current one."""

    code = "STALE_MEMBER_EPOCH"
    hint = "Send a heartbeat to get the current epoch, then retry."


class InstanceInUse(FlyMQError):
    """The group instance id is in use by another member."""

    code = "INSTANCE_IN_USE"
    hint = "Stop the other member, or use a different group instance id for each member."


class UnsupportedAssignor(InvalidRequest):
    """The broker does not support this assignor."""

    code = "UNSUPPORTED_ASSIGNOR"
    hint = "Use `uniform` or `range`."


class InvalidTopicPattern(InvalidRequest):
    """The topic pattern is not a valid regular expression, or uses unsupported syntax."""

    code = "INVALID_TOPIC_PATTERN"
    hint = "Patterns use RE2 syntax: no lookahead, no backreferences."


class OtherGroupType(FlyMQError):
    """The group's members use another group protocol."""

    code = "OTHER_GROUP_TYPE"
    hint = "Stop all members of the group first. Only groups of consumers can change `group.protocol` while they run."


class InvalidTopology(InvalidRequest):
    """The topology of a Kafka Streams application makes no sense."""

    code = "INVALID_TOPOLOGY"
    hint = "It is made by the Kafka Streams library: use a released version of it."
