"""Consumer groups: membership, committed offsets, administration."""

# ruff: noqa: RUF012  # msgspec copies an empty list or dict that is a default
from __future__ import annotations

from flymq.model.coordinators import CoordinatorKind
from flymq.wire.native.messages.fields import (
    EMPTY,
    I32,
    I64,
    NO_EPOCH,
    NO_OFFSET,
    U16,
    U32,
    Bin,
    Failure,
    Many,
    Message,
    Offset,
    Part,
    PartitionIndex,
    PartitionRef,
    Request,
    RequestPart,
    TopicPartitions,
)
from flymq.wire.native.messages.records import OffsetQuery

NO_GENERATION = -1


class Subscribe(Request):
    """Join a group. Waits until all members have joined; then each of them requests its assignment with SYNC.

    `assignors` are names in order of preference; none means "range".
    """

    group: str
    topics: Many[str]
    member: str = ""
    instance: str = ""
    session_timeout_ms: U32 = 30_000
    rebalance_timeout_ms: U32 = 60_000
    assignors: Many[str] = []
    owned: Many[TopicPartitions] = []
    user_data: Bin = EMPTY


class GroupMember(Part):
    """What the group leader needs to know about each member."""

    member: str
    instance: str = ""
    topics: list[str] = []
    owned: list[TopicPartitions] = []
    user_data: Bin = EMPTY


class SubscribeAnswer(Message):
    """Membership in one generation. `members` is only set for the group leader, which computes the assignment."""

    member: str
    generation: I32
    assignor: str = "range"
    assigns: bool = False
    members: list[GroupMember] = []


class MemberAssignment(RequestPart):
    """The assignment of one member."""

    member: str
    partitions: Many[TopicPartitions] = []


class Sync(Request):
    """Request this member's assignment; the group leader sends those of all members."""

    group: str
    member: str
    generation: I32
    assignments: Many[MemberAssignment] = []


class SyncAnswer(Message):
    """The assignment of this member."""

    partitions: list[TopicPartitions] = []


class Heartbeat(Request):
    """Heartbeat of a member. On the error REBALANCE_IN_PROGRESS it must rejoin."""

    group: str
    member: str
    generation: I32


class Leave(Request):
    """Leave the group; its partitions are reassigned at once."""

    group: str
    member: str


class OffsetToCommit(RequestPart):
    """The next offset to read in one partition."""

    topic: str
    partition: PartitionIndex
    offset: Offset
    leader_epoch: I32 = NO_EPOCH
    metadata: str = ""


class Commit(Request):
    """Commit offsets. Without a member id: a simple commit, allowed while the group has no members."""

    group: str
    offsets: Many[OffsetToCommit]
    member: str = ""
    generation: I32 = NO_GENERATION


class OffsetCommitted(Part):
    """The result of one offset."""

    topic: str
    partition: PartitionIndex
    error: Failure | None = None


class CommitAnswer(Message):
    """One entry per offset of the request, in the same order."""

    partitions: list[OffsetCommitted]


class FetchOffsets(Request):
    """The committed offsets of a group; null requests all its partitions."""

    group: str
    partitions: Many[PartitionRef] | None = None
    require_stable: bool = True


class CommittedOffset(Part):
    """The committed offset; -1 if there is none."""

    topic: str
    partition: PartitionIndex
    offset: I64 = NO_OFFSET
    leader_epoch: I32 = NO_EPOCH
    metadata: str = ""
    error: Failure | None = None


class FetchOffsetsAnswer(Message):
    """One entry per requested partition."""

    partitions: list[CommittedOffset]


class ListGroups(Request):
    """All groups."""


class GroupSummary(Part):
    """One entry of a list of groups."""

    group: str
    state: str
    members: U32 = 0
    kind: str = "consumer"


class ListGroupsAnswer(Message):
    """Groups, sorted by name."""

    groups: list[GroupSummary]


class DescribeGroup(Request):
    """Members, assignments and lag of one group."""

    group: str


class MemberDescription(Part):
    """One member and its assignment."""

    member: str
    instance: str = ""
    client_id: str = ""
    host: str = ""
    partitions: list[TopicPartitions] = []


class GroupPosition(Part):
    """The lag of a group in one partition; -1 if no offset was committed."""

    topic: str
    partition: PartitionIndex
    offset: I64 = NO_OFFSET
    end_offset: I64 = NO_OFFSET
    lag: I64 = -1
    lag_ms: I64 = -1
    member: str = ""
    metadata: str = ""


class DescribeGroupAnswer(Message):
    """Members, assignments and lag of one group."""

    group: str
    state: str
    assignor: str = ""
    generation: I32 = NO_GENERATION
    members: list[MemberDescription] = []
    positions: list[GroupPosition] = []


class DeleteGroup(Request):
    """Delete a group without members and its committed offsets."""

    group: str


class ResetOffsets(Request):
    """Reset the offsets of a group without members: to a position or time, or to `offset` if it is set."""

    group: str
    partitions: Many[OffsetQuery] = []
    offsets: Many[OffsetToCommit] = []
    validate_only: bool = False


class ResetOffsetsAnswer(Message):
    """The new offsets of the group, or what they would be."""

    partitions: list[CommittedOffset]


class FindCoordinator(Request):
    """The coordinator of a group, of a transactional id, or of a query (kind "transaction")."""

    kind: CoordinatorKind
    key: str


class FindCoordinatorAnswer(Message):
    """The broker to send the requests of the group or transaction to."""

    broker: I32
    host: str
    port: U16
