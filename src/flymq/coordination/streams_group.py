"""A streams group (KIP-1071): the broker assigns the tasks of a Kafka Streams application. Time is passed in.

The first member brings the topology; the broker counts its tasks (streams_topology.py) and gives every member a target
(streams_assignor.py). A member reaches it with its heartbeats, as in a `ConsumerGroup`:

    1. tasks that are not in its target are revoked: they move from `assigned` to `revoking`
    2. once the member has confirmed that, it is in the group's epoch, and is assigned the free tasks of its target
    3. a task is free if no other member has it active, and no other thread of the same process has it at all

A task is active in at most one member. All of this is in the log, except the times of the last heartbeats, the endpoint
epoch and a requested shutdown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from flymq.coordination.consumer_group import JOINS, LEAVES
from flymq.coordination.entries import (
    Entry,
    StreamsGroupKey,
    StreamsGroupValue,
    StreamsMemberKey,
    StreamsMemberValue,
    TaskId,
    TasksValue,
    TopologyValue,
)
from flymq.coordination.group import Commit, GroupLimits, GroupState
from flymq.coordination.member_deadlines import find_next_deadline_s, find_overdue
from flymq.coordination.offsets import Offsets
from flymq.coordination.streams_assignor import assign_tasks
from flymq.coordination.streams_topology import Configured, Status, check_topology, configure
from flymq.model.errors import GroupFull, InvalidRequest, MemberEpochFenced, StaleMemberEpoch, UnknownMember
from flymq.model.names import TopicPartition

STREAMS = "streams"
NO_TASKS = TasksValue()
STICKY = "sticky"


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat:
    """A heartbeat of a member; None: unchanged since the last one."""

    member_id: str
    epoch: int
    client_id: str = ""
    host: str = ""
    rack: str | None = None
    rebalance_timeout_ms: int | None = None
    topology: TopologyValue | None = None
    process_id: str | None = None
    endpoint: tuple[str, int] | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    owned: TasksValue | None = None
    """The tasks it owns, if it reports them."""
    endpoint_epoch: int = -1
    shuts_down: bool = False
    """It has failed, and all members are to stop."""


@dataclass(slots=True)
class StreamsMember:
    """A member and its deadlines."""

    value: StreamsMemberValue
    deadline_s: float | None = None
    """The end of its session, unless it sends a heartbeat."""
    revoke_until_s: float | None = None
    """The end of its rebalance timeout, unless it confirms the revocation."""

    @property
    def is_at_target(self) -> bool:
        return self.value.revoking == NO_TASKS and self.value.assigned == self.value.target


class StreamsGroup:
    """One group. `decide_*` return the entries to write; `apply_*` apply written ones."""

    kind = STREAMS
    assignor = STICKY

    def __init__(self, name: str, limits: GroupLimits) -> None:
        self.name = name
        self.limits = limits
        self.value = StreamsGroupValue()
        self.offsets = Offsets(name)
        self.members: dict[str, StreamsMember] = {}
        self.is_dead = False
        self.configured = Configured()
        """The topology and the topics that exist, as of the last `decide_targets`."""
        self.endpoint_epoch = 0
        """Incremented when the tasks of a member with an endpoint change."""
        self.shut_down_by = ""
        """The member that has requested that all stop."""

    @property
    def generation(self) -> int:
        """The epoch of the group."""
        return self.value.epoch

    @property
    def state(self) -> GroupState:
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if not self.configured.is_ready:
            return GroupState.NOT_READY
        settled = all(member.is_at_target and member.value.epoch == self.generation for member in self.members.values())
        return GroupState.STABLE if settled else GroupState.RECONCILING

    @property
    def is_unused(self) -> bool:
        return not (self.members or self.offsets or self.generation)

    def topics(self) -> set[str]:
        """The topics that tasks read, if there are members."""
        topology = self.value.topology
        if topology is None or not self.members:
            return set()
        return {topic for each in topology.subtopologies for topic in each.topics}

    def is_concerned_by(self, topic: str) -> bool:
        """Whether the topology needs this topic."""
        topology = self.value.topology
        changelogs = () if topology is None else (name for each in topology.subtopologies for name in each.changelogs)
        return topic in self.topics() or any(changelog.name == topic for changelog in changelogs)

    def assignments(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions that the active tasks of each member read."""
        return {name: self.partitions_of(member.value.assigned.active) for name, member in self.members.items()}

    def partitions_of(
        self, tasks: Collection[TaskId], partition_counts: Mapping[str, int] | None = None
    ) -> list[TopicPartition]:
        """Return the partitions that tasks read; a topic may have fewer partitions than there are tasks."""
        topology = self.value.topology or TopologyValue()
        topics = {each.name: each.topics for each in topology.subtopologies}
        return [
            TopicPartition(topic, task.partition)
            for task in tasks
            for topic in topics.get(task.subtopology, ())
            if partition_counts is None or task.partition < partition_counts.get(topic, 0)
        ]

    # --- apply

    def apply_group(self, value: StreamsGroupValue | None) -> None:
        self.value = value or StreamsGroupValue()

    def apply_member(self, member_id: str, value: StreamsMemberValue | None) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        before = self.members.get(member_id)
        if before is None:
            self.members[member_id] = StreamsMember(value)
        else:
            if value.revoking != before.value.revoking:
                before.revoke_until_s = None
            before.value = value

    def check_members(self, changes: Mapping[str, StreamsMemberValue | None]) -> None:
        """Assert that no task gets active in a second member. Called before the changes are written."""
        after = {name: member.value for name, member in self.members.items()} | dict(changes)
        taken: dict[TaskId, str] = {}
        for name, value in after.items():
            for task in () if value is None else {*value.assigned.active, *value.revoking.active}:
                holder = taken.setdefault(task, name)
                assert holder == name, f"{self.name}: {task} goes to {name}, but {holder} holds it"

    def begin_sessions(self, now_s: float) -> None:
        """Start the timeouts that are not running: after a decision, or after a restart of the broker."""
        for member in self.members.values():
            if member.deadline_s is None:
                self.touch(member, now_s)
            if member.value.revoking != NO_TASKS and member.revoke_until_s is None:
                member.revoke_until_s = now_s + member.value.rebalance_timeout_ms / 1000

    def touch(self, member: StreamsMember, now_s: float) -> None:
        """Extend the session of a member."""
        member.deadline_s = now_s + self.limits.consumer_session_timeout_ms / 1000

    def overdue(self, now_s: float) -> list[str]:
        """Return the members that timed out."""
        return find_overdue(self.members, now_s)

    def next_deadline_s(self) -> float | None:
        """Return the next deadline of the group; None: there is none."""
        return find_next_deadline_s(self.members)

    # --- check requests

    def check(self, beat: StreamsHeartbeat) -> None:
        """Raise an error if a heartbeat is invalid."""
        if beat.epoch < LEAVES:
            raise InvalidRequest("a streams group has no static members")
        if beat.epoch != JOINS:
            self._check_known(beat)
            return
        if beat.rebalance_timeout_ms is None or beat.topology is None:
            raise InvalidRequest("a joining member must set its rebalance timeout and its topology")
        if beat.owned not in (None, NO_TASKS):
            raise InvalidRequest("a joining member cannot own tasks yet")
        check_topology(beat.topology)
        known = self.value.topology
        if self.members and known is not None and beat.topology.epoch >= known.epoch and beat.topology != known:
            raise InvalidRequest(f"the group {self.name!r} runs another topology: stop all its members to change it")
        if beat.member_id not in self.members and len(self.members) >= self.limits.members_max:
            raise GroupFull(f"the group {self.name!r} has {len(self.members)} members already")

    def _check_known(self, beat: StreamsHeartbeat) -> None:
        value = self._get(beat.member_id).value
        if beat.topology is not None:
            raise InvalidRequest("only a joining member can set the topology")
        if beat.epoch < 0 or beat.epoch == value.epoch:
            return
        # A member that has missed a response is one epoch behind, and owns nothing but what it was assigned.
        if beat.epoch != value.previous_epoch or beat.owned is None or not _all_in(beat.owned, value.assigned):
            raise MemberEpochFenced(f"{beat.member_id} is at epoch {value.epoch}, not {beat.epoch}")

    def check_commit(self, commit: Commit) -> None:
        """Raise an error if a commit is not allowed, as in a `ConsumerGroup`."""
        if commit.generation < 0 and not self.members:
            return
        value = self._get(commit.member_id).value
        if commit.generation == value.epoch:
            return
        since = dict(value.since)
        held = {*value.assigned.active, *value.revoking.active}
        held_since = {name: since.get(task, value.epoch) for task in held for name in self.partitions_of([task])}
        is_held = all(held_since.get(name, value.epoch) <= commit.generation for name in commit.partitions)
        if commit.generation > value.epoch or not is_held:
            raise StaleMemberEpoch(f"{commit.member_id} is at epoch {value.epoch}, not {commit.generation}")

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Raise an error unless this is a member in this epoch."""
        current = self._get(member_id).value.epoch
        if epoch != current:
            raise StaleMemberEpoch(f"{member_id} is at epoch {current}, not {epoch}")

    def statuses(self, member_id: str) -> Iterator[tuple[Status, str]]:
        """Yield what a member has to know."""
        epoch = self.members[member_id].value.topology_epoch
        current = 0 if self.value.topology is None else self.value.topology.epoch
        if epoch < current:
            yield Status.STALE_TOPOLOGY, f"The member's topology epoch {epoch} is behind the group's, {current}."
        if self.configured.status is not None:
            yield self.configured.status, self.configured.detail
        if self.shut_down_by:
            yield Status.SHUTDOWN_APPLICATION, f"The member {self.shut_down_by} has failed and requested a shutdown."

    # --- decide

    def decide_member(self, beat: StreamsHeartbeat) -> list[Entry]:
        """Add a member or update it; nothing to write if it has not changed. The first one sets the topology."""
        entries: list[Entry] = []
        if beat.topology is not None and beat.topology != self.value.topology and not self.members:
            value = msgspec.structs.replace(self.value, topology=beat.topology, tasks=())
            entries.append((StreamsGroupKey(self.name), value))
        known = self.members.get(beat.member_id)
        before = StreamsMemberValue() if known is None else known.value
        if beat.epoch == JOINS:  # whatever it had, it has lost it
            before = msgspec.structs.replace(before, epoch=0, previous_epoch=0, assigned=NO_TASKS, revoking=NO_TASKS)
        after = msgspec.structs.replace(
            before,
            process_id=before.process_id if beat.process_id is None else beat.process_id,
            client_id=beat.client_id,
            host=beat.host,
            rack=before.rack if beat.rack is None else beat.rack,
            rebalance_timeout_ms=beat.rebalance_timeout_ms or before.rebalance_timeout_ms,
            topology_epoch=before.topology_epoch if beat.topology is None else beat.topology.epoch,
            endpoint=beat.endpoint or before.endpoint,
            tags=before.tags if beat.tags is None else beat.tags,
        )
        if known is None or after != known.value:
            entries.append((StreamsMemberKey(self.name, beat.member_id), after))
        return entries

    def decide_leave(self, member_id: str) -> list[Entry]:
        return [(StreamsMemberKey(self.name, member_id), None)]

    def decide_targets(self, partition_counts: Mapping[str, int], now_ms: int) -> list[Entry]:
        """Compute the target assignment. Nothing to write if it has not changed."""
        topology = self.value.topology or TopologyValue()
        self.configured = configure(topology, partition_counts)
        tasks = tuple(sorted(self.configured.tasks.items()))
        standbys = self.limits.streams_standby_replicas
        targets = assign_tasks(
            {name: member.value for name, member in self.members.items()},
            [TaskId(name, number) for name, count in tasks for number in range(count)],
            stateful=[each.name for each in topology.subtopologies if each.changelogs],
            standbys=standbys,
        )
        changed: list[Entry] = []
        for name, member in self.members.items():
            value = msgspec.structs.replace(member.value, target=targets[name])
            if value != member.value:
                changed.append((StreamsMemberKey(self.name, name), value))
        value_after = StreamsGroupValue(self.generation + 1, self.value.topology, tasks, standbys, now_ms)
        is_same = (tasks, standbys) == (self.value.tasks, self.value.standbys)
        if not changed and self.members and self.generation and is_same:
            return []
        return [(StreamsGroupKey(self.name), value_after), *changed]

    def decide_step(self, member_id: str, owned: TasksValue | None) -> list[Entry]:
        """Move a member one step towards its target. `owned`: the tasks it owns, if it has reported them."""
        value = self.members[member_id].value
        if value.revoking != NO_TASKS and _may_hold(owned, value.revoking):
            return []
        kept = _both(value.assigned, value.target)
        lost = _without(value.assigned, value.target)
        if lost != NO_TASKS and _may_hold(owned, lost):
            after = msgspec.structs.replace(value, assigned=kept, revoking=lost)
        else:
            assigned = self._with_free(member_id, kept, value)
            after = msgspec.structs.replace(value, assigned=assigned, revoking=NO_TASKS, epoch=self.generation)
            if value.epoch != self.generation:
                after = msgspec.structs.replace(after, previous_epoch=value.epoch)
        after = msgspec.structs.replace(after, since=_since(value, after))
        return [] if after == value else [(StreamsMemberKey(self.name, member_id), after)]

    def decide_delete(self) -> list[Entry]:
        """Delete a group without members."""
        return [(StreamsGroupKey(self.name), None)] if self.generation else []

    # --- internal

    def _with_free(self, member_id: str, kept: TasksValue, value: StreamsMemberValue) -> TasksValue:
        """Return the tasks that a member keeps and the free ones of its target."""
        active: set[TaskId] = set()
        in_process: set[TaskId] = set()
        for name, other in self.members.items():
            if name != member_id:
                held = other.value.assigned, other.value.revoking
                active.update(*(tasks.active for tasks in held))
                if other.value.process_id == value.process_id:
                    in_process.update(*(part for tasks in held for part in (tasks.active, tasks.standby, tasks.warmup)))
        free = _without(value.target, TasksValue(tuple(active | in_process), tuple(in_process), tuple(in_process)))
        return TasksValue(
            tuple(sorted({*kept.active, *free.active})),
            tuple(sorted({*kept.standby, *free.standby})),
            tuple(sorted({*kept.warmup, *free.warmup})),
        )

    def _get(self, member_id: str) -> StreamsMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group {self.name!r} has no member {member_id!r}")
        return member


def _both(one: TasksValue, other: TasksValue) -> TasksValue:
    return TasksValue(
        tuple(task for task in one.active if task in other.active),
        tuple(task for task in one.standby if task in other.standby),
        tuple(task for task in one.warmup if task in other.warmup),
    )


def _without(one: TasksValue, other: TasksValue) -> TasksValue:
    return TasksValue(
        tuple(task for task in one.active if task not in other.active),
        tuple(task for task in one.standby if task not in other.standby),
        tuple(task for task in one.warmup if task not in other.warmup),
    )


def _all_in(owned: TasksValue, assigned: TasksValue) -> bool:
    return _without(owned, assigned) == NO_TASKS


def _may_hold(owned: TasksValue | None, tasks: TasksValue) -> bool:
    """Whether a member may still own some of these: yes, unless it has reported that it does not."""
    return owned is None or _both(owned, tasks) != NO_TASKS


def _since(before: StreamsMemberValue, after: StreamsMemberValue) -> tuple[tuple[TaskId, int], ...]:
    """Return the epoch in which each active task was assigned to its holder."""
    known = dict(before.since)
    held = {*before.assigned.active, *before.revoking.active}
    return tuple(
        (task, known.get(task, before.epoch) if task in held else after.epoch)
        for task in (*after.assigned.active, *after.revoking.active)
    )
