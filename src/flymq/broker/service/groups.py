"""Consumer groups: membership, committed offsets, administration. Returns values, not the groups themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from flymq.broker.coordinators.consumer_groups import Place as Place
from flymq.broker.coordinators.groups import Committer as Committer
from flymq.broker.coordinators.groups import Groups as GroupCoordinator
from flymq.broker.coordinators.groups import Joined as Joined
from flymq.broker.coordinators.groups import MemberListener as MemberListener
from flymq.broker.coordinators.groups import OffsetsToCommit
from flymq.broker.coordinators.streams_groups import StreamsPlace as StreamsPlace
from flymq.broker.replicas.lag import UNKNOWN as UNKNOWN
from flymq.broker.replicas.lag import Lag as Lag
from flymq.broker.safety import Safe, wait_safe
from flymq.broker.service.caller import Caller
from flymq.broker.service.forwarding import Forwarding
from flymq.broker.service.gate import Gate, Operation, Resource
from flymq.broker.service.leaders import Leaders
from flymq.broker.service.records import EARLIEST, LATEST, Records
from flymq.coordination.consumer_group import ConsumerGroup
from flymq.coordination.consumer_group import Heartbeat as Heartbeat
from flymq.coordination.entries import InternalTopicValue as InternalTopicValue
from flymq.coordination.entries import OffsetValue as OffsetValue
from flymq.coordination.entries import StreamsMemberValue as StreamsMemberValue
from flymq.coordination.entries import SubtopologyValue as SubtopologyValue
from flymq.coordination.entries import TaskId as TaskId
from flymq.coordination.entries import TasksValue as TasksValue
from flymq.coordination.entries import TopologyValue as TopologyValue
from flymq.coordination.group import Group
from flymq.coordination.group import GroupState as GroupState
from flymq.coordination.group import Join as Join
from flymq.coordination.groups import AnyGroup
from flymq.coordination.streams_group import STREAMS as STREAMS
from flymq.coordination.streams_group import StreamsGroup
from flymq.coordination.streams_group import StreamsHeartbeat as StreamsHeartbeat
from flymq.coordination.streams_topology import Status as Status
from flymq.coordination.subscriptions import (
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    understand,
)
from flymq.host.clock import Clock
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError, GroupNotFound, OffsetOutOfRange
from flymq.model.names import TopicPartition
from flymq.wire.native.messages.peers import LedPartition

NO_OFFSET = -1
NO_EPOCH = -1
DEFAULT_ASSIGNOR = "range"
CLASSIC = "classic"
CONSUMER = "consumer"


class NewOffset(NamedTuple):
    """An offset to commit: the next one to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(slots=True)
class WantedMember:
    """A join with a subscription that the broker can read, so that it can assign partitions."""

    topics: Sequence[str]
    owned: Iterable[TopicPartition] = ()
    user_data: bytes = b""
    assignors: Sequence[str] = ()
    member_id: str = ""
    instance: str = ""
    session_timeout_ms: int = 30_000
    rebalance_timeout_ms: int = 60_000


class SubscribedMember(NamedTuple):
    """What the group leader needs to know about each member."""

    member_id: str
    instance: str
    topics: list[str]
    owned: list[TopicPartition]
    user_data: bytes


@dataclass(frozen=True, slots=True)
class GroupSummary:
    name: str
    state: GroupState
    kind: str
    type: str
    """`classic`, `consumer` for KIP-848, or `streams` for KIP-1071."""
    members: int


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member of a group of either type; fields of the other type are empty."""

    member_id: str
    instance: str
    client_id: str
    host: str
    assignment: Sequence[TopicPartition]
    metadata: bytes = b""
    assignment_bytes: bytes = b""
    rack: str = ""
    epoch: int = -1
    topics: Sequence[str] = ()
    pattern: str = ""
    target: Sequence[TopicPartition] = ()
    is_classic: bool = True
    streams: StreamsMemberValue | None = None
    """Of a member of a streams group: its process and its tasks."""


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Committed offset and lag of a group in one partition."""

    name: TopicPartition
    committed: OffsetValue | None
    lag: Lag
    reader: str
    """The member that reads it; empty: none."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    state: GroupState
    kind: str
    type: str
    assignor: str
    generation: int
    members: Sequence[MemberInfo]
    positions: Sequence[GroupPosition]
    topology: TopologyValue | None = None
    """Of a streams group."""


class Groups:
    """Operations on groups."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        records: Records,
        gate: Gate,
        clock: Clock,
        leaders: Leaders,
        forwarding: Forwarding,
    ) -> None:
        self._coordinator = coordinator
        self._leaders = leaders
        self._forwarding = forwarding
        self._records = records
        self._gate = gate
        self._clock = clock

    # --- membership

    def join(self, caller: Caller, group: str, join: Join, *, needs_id: bool = False) -> asyncio.Future[Joined]:
        """Add a member; the future is done when its generation begins."""
        self._check_read(caller, group)
        return self._coordinator.join(group, join, needs_id=needs_id)

    def subscribe(self, caller: Caller, group: str, member: WantedMember) -> asyncio.Future[Joined]:
        """Add a member with a subscription that the broker can read."""
        subscription = Subscription(list(member.topics), list(member.owned), member.user_data)
        wanted = encode_subscription(subscription)
        join = Join(
            tuple((name, wanted) for name in member.assignors or [DEFAULT_ASSIGNOR]),
            member.member_id,
            member.instance,
            caller.client_id or caller.protocol,
            caller.address,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            assigned_by_broker=True,
        )
        return self.join(caller, group, join)

    def subscribed(self, joined: Joined) -> list[SubscribedMember]:
        """Return what the group leader needs to know about each member."""
        found = []
        for member in joined.members:
            wanted = understand(member.metadata(joined.protocol))
            found.append(
                SubscribedMember(member.member_id, member.instance, wanted.topics, wanted.owned, wanted.user_data)
            )
        return found

    def sync(
        self, caller: Caller, group: str, member: Committer, assignments: Mapping[str, bytes] | None = None
    ) -> asyncio.Future[bytes]:
        """Return the assignment of this member, once it is known; the group leader passes those of all members."""
        self._check_read(caller, group)
        return self._coordinator.sync(group, member, assignments)

    async def sync_partitions(
        self,
        caller: Caller,
        group: str,
        member: Committer,
        assignments: Mapping[str, Iterable[TopicPartition]] | None = None,
    ) -> list[TopicPartition]:
        """Like `sync`, with decoded assignments."""
        encoded = {name: encode_assignment(partitions) for name, partitions in (assignments or {}).items()}
        return parse_assignment(await self.sync(caller, group, member, encoded))

    def protocol_of(self, caller: Caller, group: str, member_id: str) -> tuple[str, str]:
        """Return the kind of a group and the assignor that a classic member has been told."""
        found = self._coordinator.get(group)
        assert not isinstance(found, StreamsGroup), "members of streams groups do not sync"
        if isinstance(found, Group):
            return found.value.kind, found.value.protocol
        classic = found.members[member_id].value.classic
        assert classic is not None, "only classic members can sync"
        return found.kind, classic.protocols[0][0]

    def heartbeat(self, caller: Caller, group: str, member: Committer) -> None:
        self._check_read(caller, group)
        self._coordinator.heartbeat(group, member)

    def session_timeout_ms(self, caller: Caller, group: str, member_id: str) -> int:
        """Return the session timeout of a classic member."""
        self._check_read(caller, group)
        return self._coordinator.session_timeout_ms(group, member_id)

    def leave(self, caller: Caller, group: str, member_id: str, *, instance: str = "") -> None:
        self._check_read(caller, group)
        self._coordinator.leave(group, member_id, instance=instance)

    def beat(self, caller: Caller, group: str, beat: Heartbeat) -> tuple[Place, Safe]:
        """Process a heartbeat of the consumer protocol (KIP-848)."""
        self._check_read(caller, group)
        return self._coordinator.consumers.heartbeat(group, beat)

    def beat_interval_ms(self, caller: Caller, group: str) -> int:
        """Return the heartbeat interval of members of the consumer protocol."""
        self._check_read(caller, group)
        return self._coordinator.consumers.limits_of(group).consumer_heartbeat_ms

    def streams_beat(self, caller: Caller, group: str, beat: StreamsHeartbeat) -> tuple[StreamsPlace, Safe]:
        """Process a heartbeat of the streams protocol (KIP-1071)."""
        self._check_read(caller, group)
        return self._coordinator.streams.heartbeat(group, beat)

    def listen(self, group: str, member_id: str, listener: MemberListener) -> None:
        """Notify a member that runs on this broker when its group rebalances or has removed it."""
        self._coordinator.listen(group, member_id, listener)

    def stop_listening(self, group: str, listener: MemberListener) -> None:
        self._coordinator.stop_listening(group, listener)

    # --- offsets

    def commit(
        self, caller: Caller, group: str, committer: Committer, offsets: Mapping[TopicPartition, NewOffset]
    ) -> tuple[dict[TopicPartition, FlyMQError], Safe]:
        """Commit offsets; return the errors of some, and when the others are durable."""
        self._check_read(caller, group)
        return self._coordinator.commit(group, committer, self.to_values(offsets))

    def to_values(self, offsets: Mapping[TopicPartition, NewOffset]) -> OffsetsToCommit:
        now_ms = self._clock.now_ms()
        return {name: OffsetValue(new.offset, new.leader_epoch, new.metadata, now_ms) for name, new in offsets.items()}

    def committed(self, caller: Caller, group: str) -> tuple[Mapping[TopicPartition, OffsetValue], Safe]:
        """Return the committed offsets of a group, none if it is unknown; and when they may be shown.

        A commit takes effect before it is durable. Shown then, it could be gone after a crash: offsets would go back.
        """
        self._check_describe(caller, group)
        return self._coordinator.committed(group), self._coordinator.safe(group)

    def is_stable(self, caller: Caller, group: str, partitions: Sequence[TopicPartition] | None) -> bool:
        """Return whether no open transaction has offsets of these partitions."""
        self._check_describe(caller, group)
        return self._coordinator.is_stable(group, partitions)

    async def until_stable(self, caller: Caller, group: str, partitions: Sequence[TopicPartition] | None) -> None:
        self._check_describe(caller, group)
        await self._coordinator.until_stable(group, partitions)

    def check_reader(self, caller: Caller, group: str, member_id: str, epoch: int) -> None:
        """Raise an error if a member fetches offsets with a stale epoch."""
        self._coordinator.check_reader(group, member_id, epoch)

    def delete_offsets(
        self, caller: Caller, group: str, partitions: Collection[TopicPartition]
    ) -> tuple[set[TopicPartition], Safe]:
        """Delete committed offsets, except of topics that members read; return the partitions of those."""
        self._gate.check(caller, Operation.DELETE, Resource.GROUP, group)
        in_use = self._coordinator.get(group).topics()
        kept = {name for name in partitions if name.topic in in_use}
        return kept, self._coordinator.forget_offsets(group, [name for name in partitions if name not in kept])

    # --- reset

    def check_empty(self, caller: Caller, group: str) -> None:
        """Raise an error if the group has members, which would not notice the reset."""
        self._check_read(caller, group)
        self._coordinator.check_empty(group)

    async def find_reset(self, caller: Caller, name: TopicPartition, at: int) -> tuple[int, int]:
        """Return offset and leader epoch of a position or timestamp; the end if there is no later record."""
        isolation = Isolation.READ_COMMITTED
        if self._forwarding.is_elsewhere(name):
            at_leader = await self._forwarding.find_offset(caller, name, at, isolation)
            if at_leader is None:
                at_leader = await self._forwarding.find_offset(caller, name, LATEST, isolation)
            return NO_OFFSET if at_leader is None else at_leader, NO_EPOCH
        found = await self._records.find_offset(caller, name, at, isolation)
        end = self._records.find_position(caller, name, LATEST, isolation)
        return (end.offset if found is None else found.offset), end.leader_epoch

    async def check_offset(self, caller: Caller, name: TopicPartition, offset: int) -> None:
        """Raise an error unless the offset is in the log of the partition or at its end, whoever leads it."""
        if not self._forwarding.is_elsewhere(name):
            self._records.check_offset(caller, name, offset)
            return
        isolation = Isolation.READ_UNCOMMITTED
        start_offset = await self._forwarding.find_offset(caller, name, EARLIEST, isolation)
        end_offset = await self._forwarding.find_offset(caller, name, LATEST, isolation)
        if not (start_offset or 0) <= offset <= (end_offset or 0):
            raise OffsetOutOfRange(f"{name} has the offsets {start_offset} to {end_offset}")

    # --- administration

    def all(self, caller: Caller) -> list[GroupSummary]:
        """Return the groups that this broker coordinates, sorted by name. Those of others are known to them alone."""
        self._coordinator.check_loaded()
        return [
            GroupSummary(group.name, group.state, group.kind, _type_of(group), len(group.members))
            for group in self._coordinator.list()
        ]

    async def describe_with_lag(self, caller: Caller, group: str) -> GroupInfo:
        """Describe a group, with the lag in all partitions, whoever leads them, once what is described is durable."""
        found, safe = self.describe(caller, group), self._coordinator.safe(group)
        await wait_safe(safe)
        led = await self._leaders.describe_elsewhere(position.name for position in found.positions)
        positions = [replace(each, lag=_lag_of(each, led.get(each.name))) for each in found.positions]
        return replace(found, positions=positions)

    def describe(self, caller: Caller, group: str, *, type_: str | None = None) -> GroupInfo:
        """Describe a group; one of another type than requested is not found. Lag is known where this broker leads."""
        self._check_describe(caller, group)
        found = self._coordinator.get(group)
        if type_ is not None and _type_of(found) != type_:
            raise GroupNotFound(f"{group!r} is not a {type_} group")
        assignments = found.assignments()
        readers = {name: member for member, assigned in assignments.items() for name in assigned}
        committed = found.offsets.committed
        return GroupInfo(
            found.name,
            found.state,
            found.kind,
            _type_of(found),
            found.assignor,
            found.generation,
            _members(found, assignments),
            [
                self._position(name, committed.get(name), readers.get(name, ""))
                for name in sorted(readers.keys() | committed.keys())
            ],
            found.value.topology if isinstance(found, StreamsGroup) else None,
        )

    def _position(self, name: TopicPartition, committed: OffsetValue | None, reader: str) -> GroupPosition:
        lag = self._coordinator.lag(name, NO_OFFSET if committed is None else committed.offset)
        return GroupPosition(name, committed, lag, reader)

    def delete(self, caller: Caller, group: str) -> Safe:
        """Delete a group without members, and its offsets."""
        self._gate.check(caller, Operation.DELETE, Resource.GROUP, group)
        return self._coordinator.delete(group)

    def _check_read(self, caller: Caller, group: str) -> None:
        self._gate.check(caller, Operation.READ, Resource.GROUP, group)

    def _check_describe(self, caller: Caller, group: str) -> None:
        self._gate.check(caller, Operation.DESCRIBE, Resource.GROUP, group)


def _lag_of(position: GroupPosition, led: LedPartition | None) -> Lag:
    """Return the lag in a partition as its leader sees it, if that is another broker."""
    if led is None:
        return position.lag
    if position.committed is None:
        return Lag(led.high_watermark)
    records = max(0, led.high_watermark - max(position.committed.offset, led.start_offset))
    return Lag(led.high_watermark, records, 0 if records == 0 else position.lag.ms or UNKNOWN)


def _type_of(group: AnyGroup) -> str:
    if isinstance(group, StreamsGroup):
        return STREAMS
    return CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC


def _members(group: AnyGroup, assignments: Mapping[str, Sequence[TopicPartition]]) -> list[MemberInfo]:
    if isinstance(group, Group):
        return _classic_members(group, assignments)
    if isinstance(group, StreamsGroup):
        return _streams_members(group, assignments)
    return [
        MemberInfo(
            member_id,
            member.value.instance,
            member.value.client_id,
            member.value.host,
            assignments[member_id],
            rack=member.value.rack,
            epoch=member.value.epoch,
            topics=member.value.topics,
            pattern=member.value.pattern,
            target=member.value.target,
            is_classic=member.value.classic is not None,
        )
        for member_id, member in group.members.items()
    ]


def _streams_members(group: StreamsGroup, assignments: Mapping[str, Sequence[TopicPartition]]) -> list[MemberInfo]:
    return [
        MemberInfo(
            member_id,
            "",
            member.value.client_id,
            member.value.host,
            assignments[member_id],
            rack=member.value.rack,
            epoch=member.value.epoch,
            streams=member.value,
        )
        for member_id, member in group.members.items()
    ]


def _classic_members(group: Group, assignments: Mapping[str, Sequence[TopicPartition]]) -> list[MemberInfo]:
    is_stable = group.state is GroupState.STABLE
    protocol = group.assignor if is_stable else ""
    return [
        MemberInfo(
            member_id,
            member.value.instance,
            member.value.client_id,
            member.value.host,
            assignments[member_id],
            metadata=member.value.metadata(protocol) if protocol else b"",
            assignment_bytes=member.value.assignment if is_stable else b"",
        )
        for member_id, member in group.members.items()
    ]
