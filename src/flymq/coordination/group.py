"""One group: its members, the generation they are in, and how it gets to the next one. Time is passed in.

    EMPTY ──join──▶ PREPARING ──all have joined, or time is over──▶ COMPLETING ──the leader has assigned────▶ STABLE
                        ▲                                        └──the broker has assigned────▶ STABLE
                        └─────── a member comes, goes, or wants something else ──────────┘

What survives a crash is a `GroupValue`, written when a generation begins and when its assignments are known. Members
that are joining the next generation are known only here; after a crash they join again. A generation is in the log
before any member is told its number, so a number never means two things.
"""

from __future__ import annotations

from collections.abc import Mapping
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
"""The kind of a group whose members read partitions."""


class GroupState(Enum):
    EMPTY = "empty"
    PREPARING = "preparing"
    COMPLETING = "completing"
    RECONCILING = "reconciling"
    """Only in a `ConsumerGroup`: its members are on their way to their targets."""
    STABLE = "stable"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What a group may be like."""

    members_max: int = 1_000
    session_timeout_ms_min: int = 1_000
    session_timeout_ms_max: int = 30 * 60_000
    consumer_session_timeout_ms: int = 45_000
    """That of members of a `ConsumerGroup`, which do not choose it …"""
    consumer_heartbeat_ms: int = 3_000
    """… and how often they are told to speak."""
    quiet_ms: int = 100
    """A new group waits for further members until none has come for so long …"""
    quiet_ms_max: int = 3_000
    """… but no longer than this."""
    offset_metadata_bytes_max: int = 4_096
    offset_retention_ms: int = 7 * 24 * 60 * 60_000
    """How long offsets are kept that nobody uses."""


@dataclass(frozen=True, slots=True)
class Join:
    """What a member says when it joins."""

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


@dataclass(slots=True)
class Member:
    """A member, and what is known of it since it last spoke."""

    value: MemberValue
    is_joining: bool = False
    """It waits for the next generation."""
    is_syncing: bool = False
    """It waits for, or has got, its assignment of this generation."""
    deadline_s: float | None = None
    """Taken for dead then, unless it speaks or waits for us."""

    @property
    def member_id(self) -> str:
        return self.value.member_id

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.value.protocols}

    def touch(self, now_s: float) -> None:
        self.deadline_s = now_s + self.value.session_timeout_ms / 1000


class Group:
    """One group. Methods check and move what a crash may forget; `decide_*` return what must be written first."""

    def __init__(self, name: str, limits: GroupLimits) -> None:
        self.name = name
        self.limits = limits
        self.value = GroupValue()
        self.offsets = Offsets(name)
        self.members: dict[str, Member] = {}
        self.kind = CONSUMER
        self.is_dead = False
        self._promised: dict[str, float] = {}  # ids given to members that have not come with them yet → until when
        self._replaced: dict[str, str] = {}  # ids of static members that came back under another → their instance
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
        """Whether it has left nothing in the log and nobody is about to join."""
        return not (self.members or self._promised or self.offsets or self.generation)

    def topics(self) -> set[str]:
        """What the members want to read, as far as they say it in a way the broker understands."""
        wanted: set[str] = set()
        if self.kind == CONSUMER:
            for member in self.members.values():
                for _, metadata in member.value.protocols[:1]:
                    wanted.update(understand(metadata).topics)
        return wanted

    def assignments(self) -> dict[str, list[TopicPartition]]:
        """Return what each member reads, as far as it is written in a way the broker understands."""
        return {name: understand_assignment(member.value.assignment) for name, member in self.members.items()}

    # --- apply

    def apply(self, value: GroupValue | None) -> None:
        """Take over what the log says of the group."""
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
        else:  # those on their way into the next generation stay on it
            members |= {name: member for name, member in self.members.items() if name not in before | set(members)}
        self.members = members

    def begin_sessions(self, now_s: float) -> None:
        """Count the silence of those who are here from now: a generation has begun, or the broker has."""
        for member in self.members.values():
            if member.deadline_s is None:
                member.touch(now_s)
        if self.state is GroupState.COMPLETING:
            self._sync_until_s = now_s + self._rebalance_timeout_s()

    # --- members come

    def check_join(self, join: Join) -> None:
        """Raise what is wrong with a request to join."""
        limits = self.limits
        if not limits.session_timeout_ms_min <= join.session_timeout_ms <= limits.session_timeout_ms_max:
            raise InvalidSessionTimeout(
                f"a session timeout is {limits.session_timeout_ms_min} to {limits.session_timeout_ms_max} ms, "
                f"not {join.session_timeout_ms}"
            )
        others = [member for member in self.members.values() if not self._is_same(member, join)]
        if not join.protocols:
            raise InconsistentAssignors("a member needs at least one assignor")
        if others and join.kind != self.kind:
            raise InconsistentAssignors(f"the group {self.name!r} is of the kind {self.kind!r}, not {join.kind!r}")
        if others and not join.names.intersection(*(member.names for member in others)):
            raise InconsistentAssignors(f"no assignor of {sorted(join.names)} suits all of the group {self.name!r}")
        if len(others) >= limits.members_max:
            raise GroupFull(f"the group {self.name!r} has {len(others)} members already")

    def promise_id(self, member_id: str, join: Join, now_s: float) -> MemberIdRequired:
        """Keep a place for a new member that must come back with its id: a lost answer then leaves no ghost."""
        self._promised[member_id] = now_s + join.session_timeout_ms / 1000
        error = MemberIdRequired(f"join again as {member_id}")
        error.member_id = member_id
        return error

    def find_replaced(self, join: Join) -> str | None:
        """Return the id of the static member that comes back without knowing it."""
        found = None if join.member_id else self._find_instance(join.instance)
        return None if found is None else found.member_id

    def decide_replace(self, old_member_id: str, new_member_id: str) -> list[Entry]:
        """Let a static member go on in its own place under a new id. Nothing to write if it is in no generation yet."""
        if all(saved.member_id != old_member_id for saved in self.value.members):
            return []
        members = tuple(
            msgspec.structs.replace(saved, member_id=new_member_id) if saved.member_id == old_member_id else saved
            for saved in self.value.members
        )
        leader = new_member_id if self.value.leader == old_member_id else self.value.leader
        return [(GroupKey(self.name), msgspec.structs.replace(self.value, members=members, leader=leader))]

    def replace(self, old_member_id: str, new_member_id: str) -> None:
        """Fence the old id, after what was decided has been applied."""
        old = self.members.pop(old_member_id, None)
        if old is not None:
            self.members[new_member_id] = Member(msgspec.structs.replace(old.value, member_id=new_member_id))
        self._replaced[old_member_id] = self.members[new_member_id].value.instance
        while len(self._replaced) > self.limits.members_max:
            del self._replaced[next(iter(self._replaced))]

    def join(self, join: Join, new_member_id: str, now_s: float) -> str:
        """Let a member in, or let it go on; return its id. When the group is PREPARING afterwards, it has to wait."""
        member_id = join.member_id or new_member_id
        saved = MemberValue(
            member_id,
            join.protocols,
            join.instance,
            join.client_id,
            join.host,
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
            join.assigned_by_broker,
        )
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
        # A leader that joins again wants to assign again; one that returns under its instance name only its place.
        calls_together = leads_itself and bool(join.member_id) and self.state is GroupState.STABLE
        wants_change = calls_together or member.value.protocols != join.protocols
        member.value = msgspec.structs.replace(saved, assignment=member.value.assignment)
        member.touch(now_s)
        if wants_change:
            self._prepare(now_s, is_new=False)
        if self.state is GroupState.PREPARING:
            member.is_joining = True
        return member_id

    def stop_waiting(self, member_id: str, now_s: float, *, was_told_its_id: bool) -> None:
        """The connection on which a member waited to join is gone."""
        member = self.members.get(member_id)
        if member is None or not member.is_joining:
            return
        member.is_joining = False
        member.touch(now_s)
        if not was_told_its_id:
            self._remove(member_id, now_s)

    # --- the next generation

    def reconsider(self, partition_counts: Mapping[str, int], now_s: float) -> None:
        """Rebalance if there are more or fewer partitions than last time."""
        if self.state is GroupState.STABLE and self._is_watched_by_broker(self.value.leader):
            wanted = {topic: partition_counts.get(topic, 0) for topic in self.topics()}
            if wanted != dict(self.value.partition_counts):
                self._prepare(now_s, is_new=False)

    def is_ready(self, now_s: float) -> bool:
        """Whether the next generation can begin."""
        if self._join_until_s is None:
            return False
        everybody = all(member.is_joining for member in self.members.values())
        return now_s >= self._join_until_s or (everybody and (not self.members or now_s >= self._quiet_until_s))

    def decide_generation(self, partition_counts: Mapping[str, int], now_ms: int) -> list[Entry]:
        """Begin the next generation with those who have come; static members keep their place for a session."""
        coming = [member.value for member in self.members.values() if member.is_joining or member.value.instance]
        value = GroupValue(self.generation + 1, self.kind, changed_at_ms=now_ms)
        if coming:
            protocol = _choose_protocol(coming)
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
        """Give every member the assignment the leader has chosen. Nothing to write when they are known already."""
        if self.state is not GroupState.COMPLETING or member_id != self.value.leader:
            return []
        assert generation == self.generation
        members = tuple(
            msgspec.structs.replace(member, assignment=assignments.get(member.member_id, b""))
            for member in self.value.members
        )
        value = msgspec.structs.replace(self.value, members=members, is_assigned=True, changed_at_ms=now_ms)
        return [(GroupKey(self.name), value)]

    def decide_forget(self) -> list[Entry]:
        """Forget a group that has no members."""
        return [(GroupKey(self.name), None)] if self.generation else []

    def sync(self, member_id: str, generation: int, now_s: float, *, instance: str = "") -> None:
        """A member asks for its assignment; it has to wait for it unless the group is STABLE."""
        self.heartbeat(member_id, generation, now_s, instance=instance)
        self.members[member_id].is_syncing = True

    # --- members live and go

    def check_member(self, member_id: str, generation: int, *, instance: str = "") -> Member:
        """Return the member, or raise why it is none of this generation."""
        self._check_instance(member_id, instance)
        member = self.members.get(member_id)
        if member is None:
            raise self._unknown(member_id)
        if generation != self.generation:
            raise StaleGeneration(f"the group {self.name!r} is at generation {self.generation}, not {generation}")
        return member

    def check_commit(self, member_id: str, generation: int, *, instance: str = "", now_s: float | None = None) -> None:
        """Raise why these may not commit. Without a member and a generation: from outside, in a group of no members."""
        if generation < 0 and not member_id:
            if self.members:
                raise UnknownMember(f"the group {self.name!r} has members: only they commit")
            return
        member = self.check_member(member_id, generation, instance=instance)
        if self.state is GroupState.COMPLETING:
            raise RebalanceInProgress(
                f"the group {self.name!r} is rebalancing: nobody has read anything in this generation yet"
            )
        if now_s is not None:
            member.touch(now_s)

    def heartbeat(self, member_id: str, generation: int, now_s: float, *, instance: str = "") -> None:
        """A member lives; raise what it must know."""
        self.check_member(member_id, generation, instance=instance).touch(now_s)
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress(f"the group {self.name!r} is rebalancing")

    def leave(self, member_id: str, now_s: float, *, instance: str = "") -> None:
        """A member goes."""
        if not member_id and (static := self._find_instance(instance)) is not None:
            member_id = static.member_id
        self._check_instance(member_id, instance)
        if self._promised.pop(member_id, None) is not None:
            return
        if member_id not in self.members:
            raise self._unknown(member_id)
        self._remove(member_id, now_s)

    def expire(self, now_s: float) -> list[str]:
        """Remove members that were silent for too long; return their ids."""
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
        """Return when to look at the group again if nothing happens before; None: never."""
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

    # --- within

    def _prepare(self, now_s: float, *, is_new: bool) -> None:
        """Call all members together for the next generation."""
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
        """Whether the broker, not the leader, notices new partitions, and assigns them if it knows the assignor."""
        member = self.members.get(leader)
        return member is not None and member.value.assigned_by_broker

    def _find_instance(self, instance: str) -> Member | None:
        if not instance:
            return None
        return next((member for member in self.members.values() if member.value.instance == instance), None)

    def _check_instance(self, member_id: str, instance: str) -> None:
        owner = self._find_instance(instance)
        if owner is not None and owner.member_id != member_id:
            raise MemberFenced(f"{instance!r} is now {owner.member_id} in the group {self.name!r}, not {member_id}")

    def _is_same(self, member: Member, join: Join) -> bool:
        return member.member_id == join.member_id or bool(join.instance and member.value.instance == join.instance)

    def _unknown(self, member_id: str) -> FlyMQError:
        if member_id in self._replaced:
            return MemberFenced(f"another member is now {self._replaced[member_id]!r} in the group {self.name!r}")
        return UnknownMember(f"the group {self.name!r} has no member {member_id!r}")


def _choose_protocol(members: list[MemberValue]) -> str:
    """Return what all support and most prefer; of equals, the first in the first member's order."""
    common = set.intersection(*({name for name, _ in member.protocols} for member in members))
    votes = {name: 0 for name, _ in members[0].protocols if name in common}
    for member in members:
        votes[next(name for name, _ in member.protocols if name in common)] += 1
    return max(votes, key=lambda name: votes[name])
