"""Consumer groups."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError
from flymq.model.errors.requests import InvalidRequest


class GroupNotFound(FlyMQError):
    """There is no such consumer group."""

    code = "GROUP_NOT_FOUND"
    hint = "`flymq group list` names the groups; one exists from its first member or commit on."


class UnknownMember(FlyMQError):
    """The group does not have this member, or no longer."""

    code = "UNKNOWN_MEMBER"
    hint = "The member was silent for longer than its session timeout; it joins again as a new one."


class StaleGeneration(FlyMQError):
    """The group has been shared out anew since; this member's share may belong to another one."""

    code = "STALE_GENERATION"
    hint = "Join the group again; commit only what the new share allows."


class RebalanceInProgress(FlyMQError):
    """The group is being shared out anew."""

    code = "REBALANCE_IN_PROGRESS"
    retriable = True
    hint = "Join the group again to get the new share."


class MemberIdRequired(FlyMQError):
    """The group has given this new member an id, `member_id`; it joins with it."""

    code = "MEMBER_ID_REQUIRED"
    retriable = True
    hint = "Join again with the id from the answer."
    member_id: str = ""


class MemberFenced(FlyMQError):
    """Another member has come with the same instance name and taken this one's place."""

    code = "MEMBER_FENCED"
    hint = "Stop this member, or give each one an instance name of its own."


class InconsistentAssignors(FlyMQError):
    """The member and the rest of the group have no assignor in common."""

    code = "INCONSISTENT_ASSIGNORS"
    hint = "Give all members of a group at least one common assignor."


class InvalidSessionTimeout(InvalidRequest):
    """The member's session timeout is not allowed."""

    code = "INVALID_SESSION_TIMEOUT"
    hint = "The message names the limits."


class GroupFull(FlyMQError):
    """The group has as many members as it may have."""

    code = "GROUP_FULL"
    hint = "Use fewer members; more of them than partitions have nothing to do."


class GroupNotEmpty(FlyMQError):
    """The group has members, which would not notice."""

    code = "GROUP_NOT_EMPTY"
    hint = "Stop all members of the group first."


class OffsetMetadataTooLarge(FlyMQError):
    """The note that goes with a committed offset is too long."""

    code = "OFFSET_METADATA_TOO_LARGE"
    hint = "Keep the note short; it is for people."


class UnstableOffsets(FlyMQError):
    """A transaction is about to commit an offset for this partition."""

    code = "UNSTABLE_OFFSETS"
    retriable = True
    hint = "Ask again when the transaction has ended."


class MemberEpochFenced(FlyMQError):
    """The member and its group disagree about the epoch it is in, so its share may belong to another one."""

    code = "MEMBER_EPOCH_FENCED"
    hint = "Give up all partitions and join again with the epoch 0."


class StaleMemberEpoch(FlyMQError):
    """The member has moved on to another epoch since it sent this."""

    code = "STALE_MEMBER_EPOCH"
    hint = "Heartbeat to learn the current epoch, then try again."


class InstanceInUse(FlyMQError):
    """Another member of the group has this instance name and has not left."""

    code = "INSTANCE_IN_USE"
    hint = "Stop the other member, or give each one an instance name of its own."


class UnsupportedAssignor(InvalidRequest):
    """The broker does not know how to share out like this."""

    code = "UNSUPPORTED_ASSIGNOR"
    hint = "Use `uniform` or `range`."


class InvalidTopicPattern(InvalidRequest):
    """The pattern of topic names cannot be read, or asks for more than a pattern may."""

    code = "INVALID_TOPIC_PATTERN"
    hint = "Patterns are written in RE2's language: no lookahead, no backreferences."


class OtherGroupType(FlyMQError):
    """The group has members that use the other group protocol."""

    code = "OTHER_GROUP_TYPE"
    hint = "Stop all members of the group before they change their `group.protocol`."
