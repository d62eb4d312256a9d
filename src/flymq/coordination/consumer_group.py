"""A group whose members the broker tells one by one what to read, as Kafka's KIP-848 has it. Time is passed in.

A member joins, leaves or subscribes to something else, or a topic changes: the target assignment is computed again. The
epoch of the group goes up, and each member has a new *target*. It gets there with its heartbeats, while all read on:

    1. what it has and is not to have any more, it is told to give up: `assigned` shrinks, `revoking` tells what is left
    2. it says that it has: now it is in the group's epoch, and gets what it is to have and nobody else holds
    3. what others still hold, it gets at a later heartbeat, when they have let go

A partition is in `assigned` or `revoking` of one member at most, so nobody reads what somebody else may still be at.
All of this is in the log; a crash forgets only when each member last spoke.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from flymq.coordination.assignors import Wish, assign_range, assign_sticky
from flymq.coordination.entries import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    Entry,
)
from flymq.coordination.group import CONSUMER, GroupLimits, GroupState
from flymq.coordination.offsets import Offsets
from flymq.coordination.topic_pattern import TopicPattern
from flymq.model.errors import (
    GroupFull,
    InstanceInUse,
    InvalidRequest,
    InvalidTopicPattern,
    MemberEpochFenced,
    MemberFenced,
    StaleMemberEpoch,
    UnknownMember,
    UnsupportedAssignor,
)
from flymq.model.names import TopicPartition, is_internal

JOINS = 0
LEAVES = -1
IS_AWAY = -2
"""Epochs with a meaning of their own. A static member that is away keeps its assignment for a session."""

UNIFORM = "uniform"
SERVER_ASSIGNORS = {UNIFORM: assign_sticky, "range": assign_range}
"""The names are Kafka's; `uniform` keeps every partition it can where it is."""

read_pattern = lru_cache(maxsize=128)(TopicPattern)
"""As many as RE2 keeps itself. Each may hold up to a megabyte, if it is hostile; a usual one holds a few kilobytes."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a member says with a heartbeat; None for what has not changed since the last one."""

    member_id: str
    epoch: int
    instance: str = ""
    client_id: str = ""
    host: str = ""
    rack: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicPartition] | None = None
    """What it has, when it says it."""


@dataclass(slots=True)
class ConsumerMember:
    """A member, and until when it has time."""

    value: ConsumerMemberValue
    deadline_s: float | None = None
    """Taken for dead then, unless it speaks."""
    revoke_until_s: float | None = None
    """Taken for stuck then, unless it has given up what it was told to."""

    @property
    def is_at_target(self) -> bool:
        return not self.value.revoking and set(self.value.assigned) == set(self.value.target)


class ConsumerGroup:
    """One group. `decide_*` return what must be written; `apply_*` take over what is."""

    kind = CONSUMER

    def __init__(self, name: str, limits: GroupLimits) -> None:
        self.name = name
        self.limits = limits
        self.value = ConsumerGroupValue()
        self.offsets = Offsets(name)
        self.members: dict[str, ConsumerMember] = {}
        self.is_dead = False
        self._holders: dict[TopicPartition, str] = {}

    @property
    def generation(self) -> int:
        """The epoch of the group."""
        return self.value.epoch

    @property
    def assignor(self) -> str:
        return self.value.assignor

    @property
    def state(self) -> GroupState:
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        settled = all(
            member.is_at_target and member.value.epoch in (self.generation, IS_AWAY) for member in self.members.values()
        )
        return GroupState.STABLE if settled else GroupState.RECONCILING

    @property
    def is_unused(self) -> bool:
        return not (self.members or self.offsets or self.generation)

    def topics(self) -> set[str]:
        """What the members read, and what they want to."""
        wanted = {partition.topic for partition in self._holders}
        for member in self.members.values():
            wanted.update(member.value.topics, (partition.topic for partition in member.value.target))
        return wanted

    def is_concerned_by(self, topic: str) -> bool:
        """Whether a member reads this topic, or wants to."""
        patterns = {member.value.pattern for member in self.members.values() if member.value.pattern}
        return topic in self.topics() or any(read_pattern(pattern).matches(topic) for pattern in patterns)

    def assignments(self) -> dict[str, list[TopicPartition]]:
        """Return what each member may read now."""
        return {name: list(member.value.assigned) for name, member in self.members.items()}

    # --- apply

    def apply_group(self, value: ConsumerGroupValue | None) -> None:
        self.value = value or ConsumerGroupValue()

    def apply_member(self, member_id: str, value: ConsumerMemberValue | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            for partition in (*before.value.assigned, *before.value.revoking):
                self._holders.pop(partition, None)
        if value is None:
            self.members.pop(member_id, None)
            return
        for partition in (*value.assigned, *value.revoking):
            self._holders[partition] = member_id
        if before is None:
            self.members[member_id] = ConsumerMember(value)
        else:
            if value.revoking != before.value.revoking:
                before.revoke_until_s = None
            before.value = value

    def begin_sessions(self, now_s: float) -> None:
        """Give time, from now, to those who have none yet: it was decided so, or the broker has started."""
        for member in self.members.values():
            if member.deadline_s is None:
                self.touch(member, now_s)
            if member.value.revoking and member.revoke_until_s is None:
                member.revoke_until_s = now_s + member.value.rebalance_timeout_ms / 1000

    def touch(self, member: ConsumerMember, now_s: float) -> None:
        """A member lives."""
        member.deadline_s = now_s + self.limits.consumer_session_timeout_ms / 1000

    # --- who may say what

    def check(self, beat: Beat) -> None:
        """Raise what is wrong with a heartbeat."""
        if beat.assignor and beat.assignor not in SERVER_ASSIGNORS:
            raise UnsupportedAssignor(f"the assignors are {' or '.join(SERVER_ASSIGNORS)}")
        if beat.pattern:
            read_pattern(beat.pattern)
        if beat.epoch == JOINS:
            self._check_join(beat)
        elif beat.epoch < IS_AWAY or (beat.epoch == IS_AWAY and not beat.instance):
            raise InvalidRequest(f"a member without an instance name cannot have the epoch {beat.epoch}")
        else:
            self._check_known(beat)

    def check_commit(self, member_id: str, generation: int, *, instance: str = "", now_s: float | None = None) -> None:
        """Raise why these may not commit. Without a member and an epoch: from outside, in a group of no members."""
        if generation < 0 and not member_id:
            if self.members:
                raise UnknownMember(f"the group {self.name!r} has members: only they commit")
            return
        self.check_epoch(member_id, generation)

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Raise unless this is a member in this epoch."""
        current = self._get(member_id).value.epoch
        if epoch != current:
            raise StaleMemberEpoch(f"{member_id} is at the epoch {current}, not {epoch}")

    def _check_join(self, beat: Beat) -> None:
        if beat.rebalance_timeout_ms is None:
            raise InvalidRequest("a member that joins tells its rebalance timeout")
        if not beat.topics and not beat.pattern:
            raise InvalidRequest("a member that joins names topics, or a pattern of them")
        if beat.owned:
            raise InvalidRequest("a member that joins has no partitions yet")
        static = self._find_instance(beat.instance)
        if static and static != beat.member_id and self.members[static].value.epoch != IS_AWAY:
            raise InstanceInUse(f"{beat.instance!r} is {static} in the group {self.name!r}, which has not left")
        if beat.member_id not in self.members and not static and len(self.members) >= self.limits.members_max:
            raise GroupFull(f"the group {self.name!r} has {len(self.members)} members already")

    def _check_known(self, beat: Beat) -> None:
        if beat.instance:
            static = self._find_instance(beat.instance)
            if static is None:
                raise UnknownMember(f"the group {self.name!r} has no member of the name {beat.instance!r}")
            if static != beat.member_id:
                raise MemberFenced(f"{beat.instance!r} is now {static} in the group {self.name!r}")
        value = self._get(beat.member_id).value
        if beat.epoch < 0 or beat.epoch == value.epoch:
            return
        # A member whose answer was lost is one epoch behind, and has nothing that the answer did not give it.
        has_lost_the_answer = beat.epoch == value.previous_epoch and value.epoch != IS_AWAY
        if not has_lost_the_answer or beat.owned is None or not beat.owned <= set(value.assigned):
            raise MemberEpochFenced(f"{beat.member_id} is at the epoch {value.epoch}, not {beat.epoch}")

    # --- members come, change and go

    def decide_member(self, beat: Beat) -> list[Entry]:
        """Take up what a member wants. Nothing to write when it wants what it wanted before."""
        entries: list[Entry] = []
        known = self.members.get(beat.member_id)
        value = ConsumerMemberValue() if known is None else known.value
        returning = self._find_instance(beat.instance) if beat.epoch == JOINS and known is None else None
        if returning is not None:
            # It has nothing after its return, but nobody else got it either: it has it back at once.
            value = msgspec.structs.replace(self.members[returning].value, epoch=0, previous_epoch=0)
            entries.append((ConsumerMemberKey(self.name, returning), None))
        wanted = msgspec.structs.replace(
            value,
            topics=value.topics if beat.topics is None else tuple(sorted(set(beat.topics))),
            pattern=value.pattern if beat.pattern is None else beat.pattern,
            assignor=value.assignor if beat.assignor is None else beat.assignor,
            instance=beat.instance or value.instance,
            client_id=beat.client_id,
            host=beat.host,
            rack=value.rack if beat.rack is None else beat.rack,
            rebalance_timeout_ms=beat.rebalance_timeout_ms or value.rebalance_timeout_ms,
        )
        if known is None or wanted != value:
            entries.append((ConsumerMemberKey(self.name, beat.member_id), wanted))
        return entries

    def decide_leave(self, member_id: str) -> list[Entry]:
        return [(ConsumerMemberKey(self.name, member_id), None)]

    def decide_away(self, member_id: str) -> list[Entry]:
        """Keep the place of a static member that will come back; it has closed what it read from."""
        value = msgspec.structs.replace(self.members[member_id].value, epoch=IS_AWAY, revoking=())
        return [(ConsumerMemberKey(self.name, member_id), value)]

    def overdue(self, now_s: float) -> list[str]:
        """Return the members that were silent, or kept what is not theirs, for too long."""
        return [
            name
            for name, member in self.members.items()
            if any(at_s is not None and at_s <= now_s for at_s in (member.deadline_s, member.revoke_until_s))
        ]

    def next_deadline_s(self) -> float | None:
        """Return when to look at the group again if nothing happens before; None: never."""
        times = [at_s for member in self.members.values() for at_s in (member.deadline_s, member.revoke_until_s)]
        return min((at_s for at_s in times if at_s is not None), default=None)

    # --- who is to have what

    def decide_targets(self, partition_counts: Mapping[str, int], now_ms: int) -> list[Entry]:
        """Decide who is to read what of the topics there are. Nothing to write when it is as before."""
        wishes = {
            name: Wish(_wanted(member.value, partition_counts), list(member.value.target), member.value.instance)
            for name, member in self.members.items()
        }
        assignor = self._choose_assignor()
        targets = SERVER_ASSIGNORS[assignor](wishes, partition_counts)
        changed: list[Entry] = []
        for name, member in self.members.items():
            value = msgspec.structs.replace(
                member.value,
                target=tuple(sorted(targets[name])),
                # What is deleted nobody has to give up; what comes under the same name is something else.
                assigned=_existing(member.value.assigned, partition_counts),
                revoking=_existing(member.value.revoking, partition_counts),
            )
            if value != member.value:
                changed.append((ConsumerMemberKey(self.name, name), value))
        if not changed and self.members and self.generation and assignor == self.assignor:
            return []
        return [(ConsumerGroupKey(self.name), ConsumerGroupValue(self.generation + 1, assignor, now_ms)), *changed]

    def decide_step(self, member_id: str, owned: Collection[TopicPartition] | None) -> list[Entry]:
        """Let a member take the next step to its target. `owned`: what it has, if it said so."""
        value = self.members[member_id].value
        if value.revoking and _may_hold(owned, value.revoking):
            return []
        target = set(value.target)
        kept = tuple(partition for partition in value.assigned if partition in target)
        lost = tuple(partition for partition in value.assigned if partition not in target)
        if lost and _may_hold(owned, lost):
            after = msgspec.structs.replace(value, assigned=kept, revoking=lost)
        else:
            free = tuple(
                name for name in value.target if name not in kept and self._holders.get(name, member_id) == member_id
            )
            after = msgspec.structs.replace(value, assigned=kept + free, revoking=(), epoch=self.generation)
            if value.epoch != self.generation:
                after = msgspec.structs.replace(after, previous_epoch=max(0, value.epoch))
        return [] if after == value else [(ConsumerMemberKey(self.name, member_id), after)]

    def decide_forget(self) -> list[Entry]:
        """Forget a group that has no members."""
        return [(ConsumerGroupKey(self.name), None)] if self.generation else []

    # --- within

    def _choose_assignor(self) -> str:
        """Return what most members ask for; of equals, the first in the alphabet.

        A broker of another version may have let a member in that asks for an assignor that is not known here.
        """
        wanted = (member.value.assignor for member in self.members.values())
        votes = Counter(name for name in wanted if name in SERVER_ASSIGNORS)
        return min(votes, key=lambda name: (-votes[name], name), default=UNIFORM)

    def _get(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group {self.name!r} has no member {member_id!r}")
        return member

    def _find_instance(self, instance: str) -> str | None:
        if not instance:
            return None
        return next((name for name, member in self.members.items() if member.value.instance == instance), None)


def _wanted(value: ConsumerMemberValue, partition_counts: Mapping[str, int]) -> set[str]:
    """Return the topics a member wants, of those there are. A pattern never means the broker's own."""
    wanted = set(value.topics).intersection(partition_counts)
    if value.pattern:
        with suppress(InvalidTopicPattern):  # a broker of another version may have understood it
            pattern = read_pattern(value.pattern)
            wanted.update(topic for topic in partition_counts if not is_internal(topic) and pattern.matches(topic))
    return wanted


def _existing(
    partitions: tuple[TopicPartition, ...], partition_counts: Mapping[str, int]
) -> tuple[TopicPartition, ...]:
    return tuple(each for each in partitions if each.partition < partition_counts.get(each.topic, 0))


def _may_hold(owned: Collection[TopicPartition] | None, partitions: Collection[TopicPartition]) -> bool:
    """Whether a member may still read some of these: yes, unless it says what it has and they are not there."""
    return owned is None or any(partition in owned for partition in partitions)
