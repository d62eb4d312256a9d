"""A streams group under random heartbeats: no task runs twice, all run in the end, and the log tells all of it."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flymq.coordination.consumer_group import JOINS
from flymq.coordination.entries import Entry, InternalTopicValue, SubtopologyValue, TasksValue, TopologyValue
from flymq.coordination.group import GroupLimits, GroupState
from flymq.coordination.groups import GroupTable
from flymq.coordination.streams_group import NO_TASKS, StreamsGroup, StreamsHeartbeat

LIMITS = GroupLimits(streams_standby_replicas=1)
TOPOLOGY = TopologyValue(
    0,
    (
        SubtopologyValue("0", ("in",)),
        SubtopologyValue("1", ("in", "more"), changelogs=(InternalTopicValue("state"),)),
    ),
)
members = st.sampled_from([f"{process}{thread}" for process in "abc" for thread in range(2)])


class StreamsGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = GroupTable(LIMITS)
        self.log: list[Entry] = []
        self.sizes = {"in": 4, "more": 2, "state": 4}
        self.owned: dict[str, TasksValue] = {}
        self.epochs: dict[str, int] = {}
        self.write(self.table.decide_type("g", StreamsGroup, 0))

    @property
    def group(self) -> StreamsGroup:
        group = self.table.get("g")
        assert isinstance(group, StreamsGroup)
        return group

    def write(self, entries: list[Entry]) -> bool:
        self.table.check(entries)
        self.log += entries
        self.table.apply(entries)
        return bool(entries)

    def assign(self) -> None:
        self.write(self.group.decide_targets(self.sizes, 0))

    def beat(self, beat: StreamsHeartbeat) -> None:
        self.group.check(beat)
        if self.write(self.group.decide_member(beat)):
            self.assign()
        self.write(self.group.decide_step(beat.member_id, beat.owned))
        value = self.group.members[beat.member_id].value
        self.owned[beat.member_id], self.epochs[beat.member_id] = value.assigned, value.epoch

    @rule(name=members)
    def come(self, name: str) -> None:
        self.owned.pop(name, None)
        joins = StreamsHeartbeat(
            name, JOINS, rebalance_timeout_ms=1, topology=TOPOLOGY, process_id=name[0], owned=NO_TASKS
        )
        self.beat(joins)

    @rule(name=members, reports=st.booleans())
    def stay(self, name: str, reports: bool) -> None:
        if name in self.group.members:
            self.beat(StreamsHeartbeat(name, self.epochs[name], owned=self.owned[name] if reports else None))

    @rule(name=members)
    def leave(self, name: str) -> None:
        if name in self.group.members:
            del self.owned[name]
            self.write(self.group.decide_leave(name))
            self.assign()

    @rule(count=st.integers(3, 6), is_there=st.booleans())
    def change_topics(self, count: int, is_there: bool) -> None:
        self.sizes = {"in": count, "more": 2, "state": count} if is_there else {"more": 2}
        self.assign()

    @rule()
    def settle(self) -> None:
        for _ in range(6):
            for name in list(self.group.members):
                self.stay(name, True)
        assert self.group.state in (GroupState.STABLE, GroupState.NOT_READY, GroupState.EMPTY)
        active = [task for member in self.group.members.values() for task in member.value.assigned.active]
        assert len(active) == len(set(active))
        if self.group.members:
            assert len(active) == sum(self.group.configured.tasks.values())
            sizes = sorted(len(member.value.assigned.active) for member in self.group.members.values())
            assert sizes[-1] - sizes[0] <= 1

    @invariant()
    def no_task_runs_in_two_members(self) -> None:
        running = [task for name, tasks in self.owned.items() if name in self.group.members for task in tasks.active]
        assert len(running) == len(set(running))

    @invariant()
    def a_process_has_a_task_once(self) -> None:
        for process in "abc":
            has = [
                task
                for name, tasks in self.owned.items()
                if name in self.group.members and name[0] == process
                for task in (*tasks.active, *tasks.standby)
            ]
            assert len(has) == len(set(has))

    @invariant()
    def the_log_tells_it_all(self) -> None:
        again = GroupTable(LIMITS)
        again.apply(self.log)
        assert again.entries() == self.table.entries()


TestStreamsGroup = StreamsGroupMachine.TestCase
TestStreamsGroup.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
