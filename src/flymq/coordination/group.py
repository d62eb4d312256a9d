"""One group of the classic protocol: its members, their generation, and the rebalance to the next. Time is passed in.

    EMPTY ──join──▶ PREPARING ──all have joined, or timeout──▶ COMPLETING ──the leader has assigned──▶ STABLE
                        ▲                                   └──the broker has assigned──▶ STABLE
                        └─────── a member joins, leaves, or changes its subscription ───────┘

The `GroupValue` survives a crash; it is written when a generation begins and when its assignment is known. Members that
are joining the next generation are only in memory; after a crash they rejoin. A generation is in the log before any
member gets its number, so a number is never used twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec

from flymq.coordination.assignors import ASSIGNORS, assign
from flymq.coordination.entries import Entry, GroupKey, GroupValue, MemberValue
from flymq.coordination.offsets import Offsets
from flymq.coordination.subscriptions import understand, understand_assignment
from flymq.model.errors import (
    FlyMQError,
    GroupFull,
    InconsistentAssignors,
    InvalidSessionTimeout,
    MemberFenced,
    MemberIdRequired,
    RebalanceInProgress,
    StaleGeneration,
    UnknownMember,
)
from flymq.model.names import TopicPartition

CONSUMER = "consumer"
"""The protocol type of groups of consumers."""


class GroupState(Enum):
    EMPTY = "empty"
    PREPARING = "preparing"
    COMPLETING = "completing"
    RECONCILING = "reconciling"
    """Only in a `ConsumerGroup` or `StreamsGroup`: some members have not reached their target assignment."""
    NOT_READY = "not_ready"
    """Only in a `StreamsGroup`: a topic of its topology is missing."""
    STABLE = "stable"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits and timeouts of groups."""

    members_max: int = 1_000
    session_timeout_ms_min: int = 1_000
    session_timeout_ms_max: int = 30 * 60_000
    consumer_session_timeout_ms: int = 45_000
    """The session timeout of members of a `ConsumerGroup`, which do not choose it …"""
    consumer_heartbeat_ms: int = 3_000
    """… and their heartbeat interval. Both also apply to streams groups."""
    streams_standby_replicas: int = 0
    """The number of standby replicas of the state of each task of a `StreamsGroup`."""
    quiet_ms: int = 100
    """Initial rebalance delay: a new group waits for more members until none has joined for this long …"""
    quiet_ms_max: int = 3_000
    """… but no longer than this."""
    offset_metadata_bytes_max: int = 4_096
    offset_retention_ms: int = 7 * 24 * 60 * 60_000
    """How long unused offsets are kept."""

    def check_session_timeout(self, timeout_ms: int) -> None:
        if not self.session_timeout_ms_min <= timeout_ms <= self.session_timeout_ms_max:
            raise InvalidSessionTimeout(
                f"the session timeout must be {self.session_timeout_ms_min} to {self.session_timeout_ms_max} ms, "
                f"not {timeout_ms}"
            )


@dataclass(frozen=True, slots=True)
class Join:
    """A request to join."""

    protocols: tuple[tuple[str, bytes], ...]
    member_id: str = ""
    instance: str = ""
    client_id: str = ""
    host: str = ""
    session_timeout_ms: int = 30_000
    rebalance_timeout_ms: int = 60_000
    kind: str = CONSUMER
    assigned_by_broker: bool = False

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    def as_member(self, member_id: str) -> MemberValue:
        return MemberValue(
            member_id,
            self.protocols,
            self.instance,
            self.client_id,
            self.host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.assigned_by_broker,
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """A request to commit offsets of these partitions; generation -1: the client is not a member."""

    member_id: str
    generation: int
    instance: str = ""
    partitions: Collection[TopicPartition] = ()
    in_transaction: bool = False


@dataclass(slots=True)
class Member:
    """A member and its state in the current rebalance."""

    value: MemberValue
    is_joining: bool = False
    """It waits for the next generation."""
    is_syncing: bool = False
    """It waits for its assignment in this generation, or has received it."""
    deadline_s: float | None = None
    """The end of its session, unless it sends a request or waits for a response."""

    @property
    def member_id(self) -> str:
        return self.value.member_id

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.value.protocols}

    def touch(self, now_s: float) -> None:
        self.deadline_s = now_s + self.value.session_timeout_ms / 1000


class Group:
    """One group. Methods change state that may be lost in a crash; `decide_*` return the entries to write first."""

    def __init__(self, name: str, limits: GroupLimits) -> None:
        self.name = name
        self.limits = limits
        self.value = GroupValue()
        self.offsets = Offsets(name)
        self.members: dict[str, Member] = {}
        self.kind = CONSUMER
        self.is_dead = False
        self._promised: dict[str, float] = {}  # ids of pending members, which have not joined with them yet → deadline
        self._replaced: dict[str, str] = {}  # former ids of static members that have restarted → instance id
        self._join_until_s: float | None = None  # set while PREPARING
        self._quiet_until_s = 0.0
        self._began_s = 0.0
        self._sync_until_s: float | None = None

    @property
    def generation(self) -> int:
        return self.value.generation

    @property
    def assignor(self) -> str:
        return self.value.protocol

    @property
    def state(self) -> GroupState:
        if self.is_dead:
            return GroupState.DEAD
        if self._join_until_s is not None:
            return GroupState.PREPARING
        if not self.members:
            return GroupState.EMPTY
        return GroupState.STABLE if self.value.is_assigned else GroupState.COMPLETING

    @property
    def is_unused(self) -> bool:
        """Whether it has no state in the log and no pending member."""
        return not (self.members or self._promised or self.offsets or self.generation)

    def topics(self) -> set[str]:
        """The topics that members subscribe to, if the broker can read their subscriptions."""
        wanted: set[str] = set()
        if self.kind == CONSUMER:
            for member in self.members.values():
                for _, metadata in member.value.protocols[:1]:
                    wanted.update(understand(metadata).topics)
        return wanted

    def assignments(self) -> dict[str, list[TopicPartition]]:
        """Return the assignment of each member; empty if the broker cannot read it."""
        return {name: understand_assignment(member.value.assignment) for name, member in self.members.items()}

    # --- apply

    def apply(self, value: GroupValue | None) -> None:
        """Apply an entry of the log."""
        if value is None:
            self.value, self.members, self._join_until_s = GroupValue(), {}, None
            return
        before = {member.member_id for member in self.value.members}
        is_new_generation = value.generation != self.value.generation
        self.value = value
        self.kind = value.kind
        members = {}
        for saved in value.members:
            known = self.members.get(saved.member_id)
            if known is not None:
                known.value = saved
                members[saved.member_id] = known
            elif is_new_generation or saved.member_id not in before:
                members[saved.member_id] = Member(saved)
        if is_new_generation:
            self._join_until_s = None
            for member in members.values():
                if member.is_joining:
                    member.deadline_s = None
                member.is_joining = member.is_syncing = False
        else:  # members that are joining the next generation are kept
            members |= {name: member for name, member in self.members.items() if name not in before | set(members)}
        self.members = members

    def begin_sessions(self, now_s: float) -> None:
        """Start the sessions that are not running: a generation has begun, or the broker has started."""
        for member in self.members.values():
            if member.deadline_s is None:
                member.touch(now_s)
        if self.state is GroupState.COMPLETING:
            self._sync_until_s = now_s + self._rebalance_timeout_s()

    # --- join

    def check_join(self, join: Join) -> None:
        """Raise an error if a request to join is invalid."""
        limits = self.limits
        limits.check_session_timeout(join.session_timeout_ms)
        others = [member for member in self.members.values() if not self._is_same(member, join)]
        if not join.protocols:
            raise InconsistentAssignors("a member needs at least one assignor")
        if others and join.kind != self.kind:
            raise InconsistentAssignors(
                f"the group {self.name!r} has the protocol type {self.kind!r}, not {join.kind!r}"
            )
        if others and not join.names.intersection(*(member.names for member in others)):
            raise InconsistentAssignors(
                f"no assignor of {sorted(join.names)} is supported by all members of the group {self.name!r}"
            )
        if len(others) >= limits.members_max:
            raise GroupFull(f"the group {self.name!r} has {len(others)} members already")

    def promise_id(self, member_id: str, join: Join, now_s: float) -> MemberIdRequired:
        """Reserve the id of a new member, which must join again with it: so a lost response leaves no dead member."""
        self._promised[member_id] = now_s + join.session_timeout_ms / 1000
        error = MemberIdRequired(f"join again as {member_id}")
        error.member_id = member_id
        return error

    def find_replaced(self, join: Join) -> str | None:
        """Return the current id of the static member that joins after a restart."""
        found = None if join.member_id else self._find_instance(join.instance)
        return None if found is None else found.member_id

    def decide_replace(self, old_member_id: str, new_member_id: str) -> list[Entry]:
        """Give a static member a new id in its generation. Nothing to write if it is in no generation yet."""
        if all(saved.member_id != old_member_id for saved in self.value.members):
            return []
        members = tuple(
            msgspec.structs.replace(saved, member_id=new_member_id) if saved.member_id == old_member_id else saved
            for saved in self.value.members
        )
        leader = new_member_id if self.value.leader == old_member_id else self.value.leader
        return [(GroupKey(self.name), msgspec.structs.replace(self.value, members=members, leader=leader))]

    def replace(self, old_member_id: str, new_member_id: str) -> None:
        """Fence the old id, after the entries of `decide_replace` were applied."""
        old = self.members.pop(old_member_id, None)
        if old is not None:
            self.members[new_member_id] = Member(msgspec.structs.replace(old.value, member_id=new_member_id))
        self._replaced[old_member_id] = self.members[new_member_id].value.instance
        while len(self._replaced) > self.limits.members_max:
            del self._replaced[next(iter(self._replaced))]

    def join(self, join: Join, new_member_id: str, now_s: float) -> str:
        """Add a member, or let it rejoin; return its id. If the group is PREPARING afterwards, it has to wait."""
        member_id = join.member_id or new_member_id
        saved = join.as_member(member_id)
        member = self.members.get(member_id)
        if member is None:
            if join.member_id and self._promised.pop(join.member_id, None) is None:
                self._check_instance(join.member_id, join.instance)
                raise self._unknown(join.member_id)
            if not self.members:
                self.kind = join.kind
            self._prepare(now_s, is_new=True)
            self.members[member_id] = Member(saved, is_joining=True)
            self._join_until_s = max(self._join_until_s or 0.0, self._began_s + self._rebalance_timeout_s())
            return member_id
        self._check_instance(member_id, join.instance)
        leads_itself = member_id == self.value.leader and not join.assigned_by_broker
        # A leader rejoins to trigger a rebalance, except a static one after a restart.
        triggers_rebalance = leads_itself and bool(join.member_id) and self.state is GroupState.STABLE
        wants_change = triggers_rebalance or member.value.protocols != join.protocols
        member.value = msgspec.structs.replace(saved, assignment=member.value.assignment)
        member.touch(now_s)
        if wants_change:
            self._prepare(now_s, is_new=False)
        if self.state is GroupState.PREPARING:
            member.is_joining = True
        return member_id

    def stop_waiting(self, member_id: str, now_s: float, *, was_told_its_id: bool) -> None:
        """The connection on which a member waited to join was closed."""
        member = self.members.get(member_id)
        if member is None or not member.is_joining:
            return
        member.is_joining = False
        member.touch(now_s)
        if not was_told_its_id:
            self._remove(member_id, now_s)

    # --- rebalance

    def reconsider(self, partition_counts: Mapping[str, int], now_s: float) -> None:
        """Rebalance if the number of partitions has changed."""
        if self.state is GroupState.STABLE and self._is_watched_by_broker(self.value.leader):
            wanted = {topic: partition_counts.get(topic, 0) for topic in self.topics()}
            if wanted != dict(self.value.partition_counts):
                self._prepare(now_s, is_new=False)

    def rebalance(self, now_s: float) -> None:
        """All members have to rejoin."""
        self._prepare(now_s, is_new=False)

    def is_ready(self, now_s: float) -> bool:
        """Whether the next generation can begin."""
        if self._join_until_s is None:
            return False
        everybody = all(member.is_joining for member in self.members.values())
        return now_s >= self._join_until_s or (everybody and (not self.members or now_s >= self._quiet_until_s))

    def decide_generation(self, partition_counts: Mapping[str, int], now_ms: int) -> list[Entry]:
        """Begin the next generation with the members that have joined; static ones stay until they time out."""
        coming = [member.value for member in self.members.values() if member.is_joining or member.value.instance]
        value = GroupValue(self.generation + 1, self.kind, changed_at_ms=now_ms)
        if coming:
            protocol = choose_protocol(coming)
            names = {member.member_id for member in coming}
            leader = self.value.leader if self.value.leader in names else coming[0].member_id
            counts: tuple[tuple[str, int], ...] = ()
            if self._is_watched_by_broker(leader):
                counts = tuple((topic, partition_counts.get(topic, 0)) for topic in sorted(self.topics()))
            by_broker = self._is_watched_by_broker(leader) and protocol in ASSIGNORS
            assignments = assign(protocol, coming, dict(counts)) if by_broker else {}
            members = tuple(
                msgspec.structs.replace(member, assignment=assignments.get(member.member_id, b"")) for member in coming
            )
            value = GroupValue(self.generation + 1, self.kind, protocol, leader, members, by_broker, counts, now_ms)
        return [(GroupKey(self.name), value)]

    def decide_assignments(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes], now_ms: int
    ) -> list[Entry]:
        """Store the assignment computed by the leader. Nothing to write if it is known already."""
        if self.state is not GroupState.COMPLETING or member_id != self.value.leader:
            return []
        assert generation == self.generation
        members = tuple(
            msgspec.structs.replace(member, assignment=assignments.get(member.member_id, b""))
            for member in self.value.members
        )
        value = msgspec.structs.replace(self.value, members=members, is_assigned=True, changed_at_ms=now_ms)
        return [(GroupKey(self.name), value)]

    def decide_delete(self) -> list[Entry]:
        """Delete a group without members."""
        return [(GroupKey(self.name), None)] if self.generation else []

    def sync(self, member_id: str, generation: int, now_s: float, *, instance: str = "") -> None:
        """A member requests its assignment; it has to wait unless the group is STABLE."""
        self.heartbeat(member_id, generation, now_s, instance=instance)
        self.members[member_id].is_syncing = True

    # --- heartbeat, leave, time out

    def check_member(self, member_id: str, generation: int, *, instance: str = "") -> Member:
        """Return the member, or raise an error if it is not in this generation."""
        self._check_instance(member_id, instance)
        member = self.members.get(member_id)
        if member is None:
            raise self._unknown(member_id)
        if generation != self.generation:
            raise StaleGeneration(f"the group {self.name!r} is at generation {self.generation}, not {generation}")
        return member

    def check_commit(self, commit: Commit) -> None:
        """Raise an error if a commit is not allowed. Without a generation, it is if the group has no members."""
        if commit.generation < 0 and not self.members:
            return
        self.check_member(commit.member_id, commit.generation, instance=commit.instance)
        if self.state is GroupState.COMPLETING and not commit.in_transaction:
            raise RebalanceInProgress(f"the group {self.name!r} is rebalancing: this generation has no assignment yet")

    def heartbeat(self, member_id: str, generation: int, now_s: float, *, instance: str = "") -> None:
        """Extend the session of a member; raise an error if it must rejoin."""
        self.check_member(member_id, generation, instance=instance).touch(now_s)
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress(f"the group {self.name!r} is rebalancing")

    def leave(self, member_id: str, now_s: float, *, instance: str = "") -> None:
        """Remove a member."""
        if not member_id and (static := self._find_instance(instance)) is not None:
            member_id = static.member_id
        self._check_instance(member_id, instance)
        if self._promised.pop(member_id, None) is not None:
            return
        if member_id not in self.members:
            raise self._unknown(member_id)
        self._remove(member_id, now_s)

    def expire(self, now_s: float) -> list[str]:
        """Remove members that timed out; return their ids."""
        self._promised = {name: until_s for name, until_s in self._promised.items() if until_s > now_s}
        gone = [
            member.member_id
            for member in self.members.values()
            if not member.is_joining and member.deadline_s is not None and member.deadline_s <= now_s
        ]
        if self._sync_until_s is not None and now_s >= self._sync_until_s:
            self._sync_until_s = None
            if self.state is GroupState.COMPLETING:
                gone += [name for name, member in self.members.items() if not member.is_syncing and name not in gone]
        for member_id in gone:
            self._remove(member_id, now_s)
        return gone

    def next_deadline_s(self) -> float | None:
        """Return the next deadline of the group; None: there is none."""
        times = [
            member.deadline_s
            for member in self.members.values()
            if member.deadline_s is not None and not member.is_joining
        ]
        times += self._promised.values()
        if self._join_until_s is not None:
            times.append(self._join_until_s)
            if self.members and all(member.is_joining for member in self.members.values()):
                times.append(self._quiet_until_s)
        elif self._sync_until_s is not None:
            times.append(self._sync_until_s)
        return min(times, default=None)

    # --- internal

    def _prepare(self, now_s: float, *, is_new: bool) -> None:
        """Start a rebalance: wait for all members to join the next generation."""
        if self._join_until_s is None:
            self._began_s = now_s
            self._quiet_until_s = now_s if self.members else now_s + self.limits.quiet_ms / 1000
            self._join_until_s = now_s + self._rebalance_timeout_s()
            self._sync_until_s = None
        elif is_new and self._quiet_until_s > now_s:
            latest_s = self._began_s + self.limits.quiet_ms_max / 1000
            self._quiet_until_s = min(now_s + self.limits.quiet_ms / 1000, latest_s)

    def _remove(self, member_id: str, now_s: float) -> None:
        del self.members[member_id]
        self._prepare(now_s, is_new=False)

    def _rebalance_timeout_s(self) -> float:
        return max((member.value.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    def _is_watched_by_broker(self, leader: str) -> bool:
        """Whether the broker, not the leader, watches for new partitions, and assigns them if it has the assignor."""
        member = self.members.get(leader)
        return member is not None and member.value.assigned_by_broker

    def _find_instance(self, instance: str) -> Member | None:
        if not instance:
            return None
        return next((member for member in self.members.values() if member.value.instance == instance), None)

    def _check_instance(self, member_id: str, instance: str) -> None:
        owner = self._find_instance(instance)
        if owner is not None and owner.member_id != member_id:
            raise MemberFenced(
                f"the instance {instance!r} of the group {self.name!r} is {owner.member_id}, not {member_id}"
            )

    def _is_same(self, member: Member, join: Join) -> bool:
        return member.member_id == join.member_id or bool(join.instance and member.value.instance == join.instance)

    def _unknown(self, member_id: str) -> FlyMQError:
        if member_id in self._replaced:
            return MemberFenced(
                f"the instance {self._replaced[member_id]!r} of the group {self.name!r} has a new member id"
            )
        return UnknownMember(f"the group {self.name!r} has no member {member_id!r}")


def choose_protocol(members: list[MemberValue]) -> str:
    """Return the assignor that all support and most prefer; in a tie, the one the first member prefers."""
    common = set.intersection(*({name for name, _ in member.protocols} for member in members))
    votes = {name: 0 for name, _ in members[0].protocols if name in common}
    for member in members:
        votes[next(name for name, _ in member.protocols if name in common)] += 1
    return max(votes, key=lambda name: votes[name])
