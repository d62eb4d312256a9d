"""Consumer groups: membership, committed offsets, administration."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from flymq.wire.native.messages.fields import (
    EMPTY,
    I32,
    I64,
    NO_EPOCH,
    NO_OFFSET,
    U32,
    Bin,
    Failure,
    Message,
    Offset,
    Part,
    PartitionIndex,
    PartitionRef,
    TopicPartitions,
)
from flymq.wire.native.messages.records import OffsetQuery

NO_GENERATION = -1


class Subscribe(Message):
    """Join a group. Waits until the group's members are known; then each of them asks for its share with SYNC.

    `assignors` are names in the order of preference; none means "range".
    """

    group: str
    topics: list[str]
    member: str = ""
    instance: str = ""
    session_timeout_ms: U32 = 30_000
    rebalance_timeout_ms: U32 = 60_000
    assignors: list[str] = []
    owned: list[TopicPartitions] = []
    user_data: Bin = EMPTY


class GroupMember(Part):
    """What the member that assigns needs to know of each member."""

    member: str
    instance: str = ""
    topics: list[str] = []
    owned: list[TopicPartitions] = []
    user_data: Bin = EMPTY


class SubscribeAnswer(Message):
    """Membership in one generation. `members` is filled only for the one member that must assign by itself."""

    member: str
    generation: I32
    assignor: str = "range"
    assigns: bool = False
    members: list[GroupMember] = []


class MemberAssignment(Part):
    """The share of one member."""

    member: str
    partitions: list[TopicPartitions] = []


class Sync(Message):
    """Ask for this member's share; the member that assigns sends everybody's."""

    group: str
    member: str
    generation: I32
    assignments: list[MemberAssignment] = []


class SyncAnswer(Message):
    """What this member reads."""

    partitions: list[TopicPartitions] = []


class Heartbeat(Message):
    """This member lives. The error REBALANCE_IN_PROGRESS tells it to subscribe again."""

    group: str
    member: str
    generation: I32


class Leave(Message):
    """This member goes; the others share its partitions at once."""

    group: str
    member: str


class OffsetToCommit(Part):
    """The next offset to read of one partition."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    leader_epoch: I32 = NO_EPOCH
    metadata: str = ""


class Commit(Message):
    """Save how far a group has read. Without a member: from outside, allowed while the group has no members."""

    group: str
    offsets: list[OffsetToCommit]
    member: str = ""
    generation: I32 = NO_GENERATION


class OffsetCommitted(Part):
    """What became of one offset."""

    topic: str
    partition: PartitionIndex
    error: Failure | None = None


class CommitAnswer(Message):
    """One entry for each offset of the request, in its order."""

    partitions: list[OffsetCommitted]


class FetchOffsets(Message):
    """How far a group has read; null asks for all its partitions."""

    group: str
    partitions: list[PartitionRef] | None = None
    require_stable: bool = True


class CommittedOffset(Part):
    """The next offset to read; -1 when none was committed."""

    topic: str
    partition: PartitionIndex
    offset: I64 = NO_OFFSET
    leader_epoch: I32 = NO_EPOCH
    metadata: str = ""
    error: Failure | None = None


class FetchOffsetsAnswer(Message):
    """One entry for each partition asked for."""

    partitions: list[CommittedOffset]


class ListGroups(Message):
    """All groups."""


class GroupSummary(Part):
    """One line of a list of groups."""

    group: str
    state: str
    members: U32 = 0
    kind: str = "consumer"


class ListGroupsAnswer(Message):
    """Groups in the order of their names."""

    groups: list[GroupSummary]


class DescribeGroup(Message):
    """Members, shares and lag of one group."""

    group: str


class MemberDescription(Part):
    """One member and its share."""

    member: str
    instance: str = ""
    client_id: str = ""
    host: str = ""
    partitions: list[TopicPartitions] = []


class GroupPosition(Part):
    """How far a group is behind in one partition; lag -1 when nothing was committed."""

    topic: str
    partition: PartitionIndex
    offset: I64 = NO_OFFSET
    end_offset: I64 = NO_OFFSET
    lag: I64 = -1
    lag_ms: I64 = -1
    member: str = ""
    metadata: str = ""


class DescribeGroupAnswer(Message):
    """Members, shares and lag of one group."""

    group: str
    state: str
    assignor: str = ""
    generation: I32 = NO_GENERATION
    members: list[MemberDescription] = []
    positions: list[GroupPosition] = []


class DeleteGroup(Message):
    """Forget a group without members and its offsets."""

    group: str


class ResetOffsets(Message):
    """Move a group without members: each partition to a position or time, or to `offset` where one is given."""

    group: str
    partitions: list[OffsetQuery] = []
    offsets: list[OffsetToCommit] = []
    validate_only: bool = False


class ResetOffsetsAnswer(Message):
    """Where the group stands now, or would stand."""

    partitions: list[CommittedOffset]
