"""A group of the consumer protocol (KIP-848): the broker reconciles each member with its assignment. Time is passed in.

When a member joins, leaves or changes its subscription, or a topic changes, the target assignment is computed again:
the group epoch is incremented, and each member has a new *target*. It gets there with its heartbeats; all keep reading:

    1. partitions that are not in its target are revoked: they move from `assigned` to `revoking`
    2. once the member has confirmed that, it is in the group's epoch, and is assigned the free partitions of its target
    3. partitions that other members still hold are assigned at a later heartbeat, after they were revoked there

A partition is in `assigned` or `revoking` of at most one member, so no two members read it at the same time.
All of this is in the log; only the times of the last heartbeats are lost in a crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from flymq.coordination.assignors import MemberSubscription, assign_range, assign_sticky
from flymq.coordination.entries import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    Entry,
)
from flymq.coordination.group import CONSUMER, Commit, GroupLimits, GroupState, Join
from flymq.coordination.member_deadlines import find_next_deadline_s, find_overdue
from flymq.coordination.offsets import Offsets
from flymq.coordination.subscriptions import parse_subscription
from flymq.coordination.topic_pattern import TopicPattern
from flymq.model.errors import (
    GroupFull,
    InconsistentAssignors,
    InstanceInUse,
    InvalidRequest,
    InvalidTopicPattern,
    MemberEpochFenced,
    MemberFenced,
    StaleGeneration,
    StaleMemberEpoch,
    UnknownMember,
    UnsupportedAssignor,
)
from flymq.model.names import TopicPartition, is_internal

JOINS = 0
LEAVES = -1
IS_AWAY = -2
"""Special epochs. A static member that is away keeps its assignment until its session times out."""

UNIFORM = "uniform"
SERVER_ASSIGNORS = {UNIFORM: assign_sticky, "range": assign_range}
"""The names are Kafka's; `uniform` is sticky."""

read_pattern = lru_cache(maxsize=128)(TopicPattern)
"""As many as RE2 caches itself. A hostile pattern may take up to a megabyte; a usual one takes a few kilobytes."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat of a member; None: unchanged since the last one."""

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
    """The partitions it owns, if it reports them."""


@dataclass(slots=True)
class ConsumerMember:
    """A member and its deadlines."""

    value: ConsumerMemberValue
    deadline_s: float | None = None
    """The end of its session, unless it sends a heartbeat."""
    revoke_until_s: float | None = None
    """The end of its rebalance timeout, unless it confirms the revocation; for a classic member, unless it rejoins."""

    @property
    def held(self) -> set[TopicPartition]:
        """The partitions that nobody else may read."""
        return {*self.value.assigned, *self.value.revoking}

    @property
    def is_at_target(self) -> bool:
        return not self.value.revoking and set(self.value.assigned) == set(self.value.target)


class ConsumerGroup:
    """One group. `decide_*` return the entries to write; `apply_*` apply written ones."""

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
        """The topics that members read or subscribe to by name."""
        wanted = {partition.topic for partition in self._holders}
        for member in self.members.values():
            wanted.update(member.value.topics, (partition.topic for partition in member.value.target))
        return wanted

    def is_concerned_by(self, topic: str) -> bool:
        """Whether a member reads this topic or subscribes to it."""
        patterns = {member.value.pattern for member in self.members.values() if member.value.pattern}
        return topic in self.topics() or any(read_pattern(pattern).matches(topic) for pattern in patterns)

    def assignments(self) -> dict[str, list[TopicPartition]]:
        """Return the current assignment of each member."""
        return {name: list(member.value.assigned) for name, member in self.members.items()}

    # --- apply

    def apply_group(self, value: ConsumerGroupValue | None) -> None:
        self.value = value or ConsumerGroupValue()

    def apply_member(self, member_id: str, value: ConsumerMemberValue | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            for partition in before.held:
                if self._holders.get(partition) == member_id:
                    del self._holders[partition]
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

    def check_members(self, changes: Mapping[str, ConsumerMemberValue | None]) -> None:
        """Assert that no partition gets a second holder. Called before the changes are written."""
        taken: dict[TopicPartition, str] = {}
        for member_id, value in changes.items():
            if value is None:
                continue
            known = self.members.get(member_id)
            for partition in {*value.assigned, *value.revoking} - (known.held if known else set()):
                holder = self._holders.get(partition, member_id)
                if holder in changes:
                    after = changes[holder]
                    gives_up = after is None or partition not in (*after.assigned, *after.revoking)
                    holder = member_id if gives_up else holder
                holder = taken.setdefault(partition, holder)
                assert holder == member_id, f"{self.name}: {partition} goes to {member_id}, but {holder} holds it"

    def begin_sessions(self, now_s: float) -> None:
        """Start the timeouts that are not running: after a decision, or after a restart of the broker."""
        for member in self.members.values():
            if member.deadline_s is None:
                self.touch(member, now_s)
            if member.value.revoking and member.revoke_until_s is None:
                member.revoke_until_s = now_s + member.value.rebalance_timeout_ms / 1000

    def touch(self, member: ConsumerMember, now_s: float) -> None:
        """Extend the session of a member."""
        classic = member.value.classic
        timeout_ms = self.limits.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        member.deadline_s = now_s + timeout_ms / 1000

    # --- check requests

    def check(self, beat: Heartbeat) -> None:
        """Raise an error if a heartbeat is invalid."""
        if beat.assignor and beat.assignor not in SERVER_ASSIGNORS:
            raise UnsupportedAssignor(f"the assignors are {' or '.join(SERVER_ASSIGNORS)}")
        if beat.pattern:
            read_pattern(beat.pattern)
        if beat.epoch == JOINS:
            self._check_join(beat)
        elif beat.epoch < IS_AWAY or (beat.epoch == IS_AWAY and not beat.instance):
            raise InvalidRequest(f"a member without an instance id cannot have the epoch {beat.epoch}")
        else:
            self._check_known(beat)

    def check_commit(self, commit: Commit) -> None:
        """Raise an error if a commit is not allowed. Without an epoch, it is if the group has no members.

        A member that has not yet received its new epoch can commit for a partition it has held all the time.
        """
        if commit.generation < 0 and not self.members:
            return
        value = self._get(commit.member_id).value
        if commit.generation == value.epoch:
            return
        since = dict(value.since)
        held = {*value.assigned, *value.revoking}
        is_held = all(name in held and since.get(name, value.epoch) <= commit.generation for name in commit.partitions)
        if commit.generation > value.epoch or not is_held:
            error = StaleMemberEpoch if value.classic is None else StaleGeneration
            raise error(f"{commit.member_id} is at epoch {value.epoch}, not {commit.generation}")

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Raise an error unless this is a member in this epoch."""
        current = self._get(member_id).value.epoch
        if epoch != current:
            raise StaleMemberEpoch(f"{member_id} is at epoch {current}, not {epoch}")

    def _check_join(self, beat: Heartbeat) -> None:
        if beat.rebalance_timeout_ms is None:
            raise InvalidRequest("a joining member must set its rebalance timeout")
        if beat.topics is None and beat.pattern is None:
            raise InvalidRequest("a joining member must send its subscription: names, which may be none, or a pattern")
        if beat.owned:
            raise InvalidRequest("a joining member cannot own partitions yet")
        static = self._find_instance(beat.instance)
        if static and static != beat.member_id and not self._can_be_replaced(static):
            raise InstanceInUse(f"the instance {beat.instance!r} of the group {self.name!r} is in use by {static}")
        if beat.member_id not in self.members and not static and len(self.members) >= self.limits.members_max:
            raise GroupFull(f"the group {self.name!r} has {len(self.members)} members already")

    def _can_be_replaced(self, member_id: str) -> bool:
        """Whether a static member can return with another id: it is away, or classic, which does not say so."""
        value = self.members[member_id].value
        return value.epoch == IS_AWAY or value.classic is not None

    def _check_known(self, beat: Heartbeat) -> None:
        if beat.instance:
            static = self._find_instance(beat.instance)
            if static is None:
                raise UnknownMember(f"the group {self.name!r} has no instance {beat.instance!r}")
            if static != beat.member_id:
                raise MemberFenced(f"the instance {beat.instance!r} of the group {self.name!r} is now {static}")
        value = self._get(beat.member_id).value
        if beat.epoch < 0 or beat.epoch == value.epoch:
            return
        # A member that has missed a response is one epoch behind, and owns nothing but what it was assigned.
        has_missed_a_response = beat.epoch == value.previous_epoch and value.epoch != IS_AWAY
        if not has_missed_a_response or beat.owned is None or not beat.owned <= set(value.assigned):
            raise MemberEpochFenced(f"{beat.member_id} is at epoch {value.epoch}, not {beat.epoch}")

    # --- members

    def decide_member(self, beat: Heartbeat) -> list[Entry]:
        """Add a member or update its subscription; nothing to write if it has not changed."""
        known = self.members.get(beat.member_id)
        value, entries = self._find_or_replace(beat.member_id, beat.instance if beat.epoch == JOINS else "")
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
            classic=None,
        )
        if known is None or wanted != value:
            entries.append((ConsumerMemberKey(self.name, beat.member_id), wanted))
        return entries

    def _find_or_replace(self, member_id: str, instance: str) -> tuple[ConsumerMemberValue, list[Entry]]:
        """Return the value of a member; a static one that returns with another id gets that of its former id."""
        if (known := self.members.get(member_id)) is not None:
            return known.value, []
        returning = self._find_instance(instance)
        if returning is None:
            return ConsumerMemberValue(), []
        # Its partitions were kept for it: it gets them back at once.
        value = self.members[returning].value
        kept = tuple(partition for partition in value.assigned if self._holders.get(partition, returning) == returning)
        value = msgspec.structs.replace(value, epoch=0, previous_epoch=0, assigned=kept, revoking=())
        return value, [(ConsumerMemberKey(self.name, returning), None)]

    def decide_leave(self, member_id: str) -> list[Entry]:
        return [(ConsumerMemberKey(self.name, member_id), None)]

    def decide_away(self, member_id: str) -> list[Entry]:
        """Keep the assignment of a static member that will come back; it reads nothing meanwhile."""
        value = msgspec.structs.replace(self.members[member_id].value, epoch=IS_AWAY, revoking=())
        return [(ConsumerMemberKey(self.name, member_id), value)]

    def overdue(self, now_s: float) -> list[str]:
        """Return the members that timed out."""
        return find_overdue(self.members, now_s)

    def next_deadline_s(self) -> float | None:
        """Return the next deadline of the group; None: there is none."""
        return None if self.is_dead else find_next_deadline_s(self.members)

    # --- members of the classic protocol: group_migration.py

    def check_classic_join(self, join: Join) -> None:
        """Raise an error if a classic member cannot join."""
        self.limits.check_session_timeout(join.session_timeout_ms)
        static = self._find_instance(join.instance)
        others = [member for name, member in self.members.items() if name not in (join.member_id, static)]
        classic = [member.value.classic for member in others if member.value.classic is not None]
        common = join.names.intersection(*({name for name, _ in member.protocols} for member in classic))
        if join.kind != CONSUMER or not common:
            names = sorted(join.names)
            raise InconsistentAssignors(
                f"no assignor of {names} is supported by all members of the group {self.name!r}"
            )
        parse_subscription(join.protocols[0][1])
        if join.member_id and static and static != join.member_id:
            raise MemberFenced(f"the instance {join.instance!r} of the group {self.name!r} is now {static}")
        if static and self.members[static].value.classic is None and not self._can_be_replaced(static):
            raise InstanceInUse(f"the instance {join.instance!r} of the group {self.name!r} is in use by {static}")
        if len(others) >= self.limits.members_max:
            raise GroupFull(f"the group {self.name!r} has {len(others)} members already")

    def decide_classic_join(self, join: Join, member_id: str) -> list[Entry]:
        """Add a classic member or update its subscription."""
        value, entries = self._find_or_replace(member_id, join.instance)
        wanted = msgspec.structs.replace(
            value,
            topics=tuple(sorted(set(parse_subscription(join.protocols[0][1]).topics))),
            pattern="",
            assignor="",
            instance=join.instance or value.instance,
            client_id=join.client_id,
            host=join.host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            classic=join.as_member(member_id),
        )
        return [*entries, (ConsumerMemberKey(self.name, member_id), wanted)]

    def get_classic(self, member_id: str, generation: int, *, instance: str = "") -> ConsumerMember:
        """Return a classic member, or raise an error if it is not in this generation, which is its epoch."""
        if instance and (static := self._find_instance(instance)) is not None and static != member_id:
            raise MemberFenced(f"the instance {instance!r} of the group {self.name!r} is now {static}")
        member = self._get(member_id)
        if member.value.classic is None:
            raise UnknownMember(f"the member {member_id!r} of the group {self.name!r} uses the consumer protocol")
        if generation != member.value.epoch:
            raise StaleGeneration(f"{member_id} is at generation {member.value.epoch}, not {generation}")
        return member

    def find_leaving(self, member_id: str, *, instance: str = "") -> str:
        """Return the id of a member that leaves, by its id or its instance."""
        static = self._find_instance(instance)
        if member_id and static is not None and static != member_id:
            raise MemberFenced(f"the instance {instance!r} of the group {self.name!r} is now {static}")
        self._get(member_id or static or "")
        return member_id or static or ""

    def must_rejoin(self, member: ConsumerMember) -> bool:
        """Whether a classic member has a step to take: it is behind, has to revoke, or what it waits for is free."""
        value = member.value
        if value.epoch != self.generation or value.revoking:
            return True
        missing = set(value.target).difference(value.assigned)
        return bool(missing) and not any(name in self._holders for name in missing)

    # --- assignments

    def decide_targets(self, partition_counts: Mapping[str, int], now_ms: int) -> list[Entry]:
        """Compute the target assignment. Nothing to write if it has not changed."""
        subscriptions = {
            name: MemberSubscription(
                _wanted(member.value, partition_counts), list(member.value.target), member.value.instance
            )
            for name, member in self.members.items()
        }
        assignor = self._choose_assignor()
        targets = SERVER_ASSIGNORS[assignor](subscriptions, partition_counts)
        changed: list[Entry] = []
        for name, member in self.members.items():
            value = msgspec.structs.replace(
                member.value,
                target=tuple(sorted(targets[name])),
                # Deleted partitions need no revocation; a topic created again under the same name is another one.
                assigned=_existing(member.value.assigned, partition_counts),
                revoking=_existing(member.value.revoking, partition_counts),
            )
            if value != member.value:
                changed.append((ConsumerMemberKey(self.name, name), value))
        if not changed and self.members and self.generation and assignor == self.assignor:
            return []
        return [(ConsumerGroupKey(self.name), ConsumerGroupValue(self.generation + 1, assignor, now_ms)), *changed]

    def decide_step(self, member_id: str, owned: Collection[TopicPartition] | None) -> list[Entry]:
        """Move a member one step towards its target. `owned`: the partitions it owns, if it has reported them."""
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
        after = msgspec.structs.replace(after, since=_since(value, after))
        return [] if after == value else [(ConsumerMemberKey(self.name, member_id), after)]

    def decide_delete(self) -> list[Entry]:
        """Delete a group without members."""
        return [(ConsumerGroupKey(self.name), None)] if self.generation else []

    # --- internal

    def _choose_assignor(self) -> str:
        """Return the assignor that most members request; in a tie, the first in alphabetical order.

        A broker of another version may have accepted a member with an assignor that is unknown here.
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
    """Return the existing topics a member subscribes to. A pattern never matches internal topics."""
    wanted = set(value.topics).intersection(partition_counts)
    if value.pattern:
        with suppress(InvalidTopicPattern):  # a broker of another version may have accepted it
            pattern = read_pattern(value.pattern)
            wanted.update(topic for topic in partition_counts if not is_internal(topic) and pattern.matches(topic))
    return wanted


def _existing(
    partitions: tuple[TopicPartition, ...], partition_counts: Mapping[str, int]
) -> tuple[TopicPartition, ...]:
    return tuple(each for each in partitions if each.partition < partition_counts.get(each.topic, 0))


def _since(before: ConsumerMemberValue, after: ConsumerMemberValue) -> tuple[tuple[TopicPartition, int], ...]:
    """Return the epoch in which each partition was assigned to its holder."""
    known = dict(before.since)
    held = {*before.assigned, *before.revoking}
    return tuple(
        (name, known.get(name, before.epoch) if name in held else after.epoch)
        for name in (*after.assigned, *after.revoking)
    )


def _may_hold(owned: Collection[TopicPartition] | None, partitions: Collection[TopicPartition]) -> bool:
    """Whether a member may still own some of these: yes, unless it has reported that it does not."""
    return owned is None or any(partition in owned for partition in partitions)
