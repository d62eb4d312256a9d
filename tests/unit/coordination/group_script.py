"""The commands of the scenarios in scenarios/groups: a group, its log and a clock, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.coordination.scripts import Command, split_options

from flymq.coordination.entries import Entry, OffsetValue
from flymq.coordination.group import Commit, Group, GroupLimits, GroupState, Join
from flymq.coordination.groups import GroupTable
from flymq.coordination.subscriptions import (
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
)
from flymq.model.names import TopicPartition, by_topic


class GroupScript:
    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.table = GroupTable(GroupLimits())
        self.topics: dict[str, int] = {}
        self.now_s = 0.0
        self.ids: dict[str, str] = {}
        self.given: dict[str, int] = {}
        self.waiting: set[str] = set()

    def find(self, name: str) -> Command:
        command: Command = getattr(self, f"do_{name.replace('-', '_')}")
        return command

    @property
    def group(self) -> Group:
        found = self.table.get_or_add("g")
        assert isinstance(found, Group)
        return found

    def write(self, entries: list[Entry]) -> None:
        self.table.check(entries)
        self.log += entries
        self.table.apply(entries)

    def advance(self) -> Iterator[str]:
        group = self.group
        if group.is_ready(self.now_s):
            self.write(group.decide_generation(self.topics, now_ms=int(self.now_s * 1000)))
            group.begin_sessions(self.now_s)
            self.waiting.clear()
            yield self.describe()

    def describe(self) -> str:
        group = self.group
        if not group.members:
            return f"generation {group.generation}: nobody"
        assignments = ", ".join(f"{member.member_id} has {_show(member.assignment)}" for member in group.value.members)
        if not group.value.is_assigned:
            assignments = f"{', '.join(group.members)}; waiting for {group.value.leader} to assign"
        return f"generation {group.generation} by {group.value.protocol}: {assignments}"

    # --- commands

    def do_topics(self, words: list[str]) -> Iterator[str]:
        self.topics = {name: int(count) for name, count in split_options(words)[1].items()}
        self.group.reconsider(self.topics, self.now_s)
        yield from self.advance()
        if self.group.state is GroupState.PREPARING:
            yield "rebalancing"

    def do_join(self, words: list[str]) -> Iterator[str]:
        (alias, *flags), options = split_options(words)
        member_id = "" if "new" in flags else self.ids.get(alias, "")
        owned = [_partition(name) for name in options["holds"].split(",")] if options.get("holds") else []
        wanted = encode_subscription(Subscription(options.get("topics", "orders").split(","), owned))
        join = Join(
            tuple((name, wanted) for name in options.get("via", "range").split(",")),
            member_id,
            options.get("instance", ""),
            session_timeout_ms=int(float(options.get("session", "10")) * 1000),
            rebalance_timeout_ms=int(float(options.get("rebalance", "30")) * 1000),
            assigned_by_broker="kafka" not in flags,
        )
        group = self.group
        group.check_join(join)
        new_id = self.new_id(alias)
        if (old := group.find_replaced(join)) is not None:
            self.write(group.decide_replace(old, new_id))
            group.replace(old, new_id)
            yield f"{new_id} replaces {old}"
        elif "needs-id" in flags and not member_id:
            self.ids[alias] = new_id
            raise group.promise_id(new_id, join, self.now_s)
        self.ids[alias] = group.join(join, new_id, self.now_s)
        if group.state is GroupState.PREPARING:
            self.waiting.add(self.ids[alias])
            happened = list(self.advance())
            yield from happened or [f"{self.ids[alias]} waits"]
        else:
            yield f"{self.ids[alias]} is in generation {group.generation}"

    def do_hang_up(self, words: list[str]) -> Iterator[str]:
        member_id = self.ids[words[0]]
        self.waiting.discard(member_id)
        self.group.stop_waiting(member_id, self.now_s, was_told_its_id="known" in words)
        yield from self.advance()

    def do_sync(self, words: list[str]) -> Iterator[str]:
        (alias, *_), options = split_options(words)
        member_id = self.ids[alias]
        self.group.sync(member_id, self.group.generation, self.now_s)
        assignments = {
            self.ids[name]: encode_assignment(_partition(part) for part in parts.split(","))
            for name, parts in options.items()
        }
        entries = self.group.decide_assignments(member_id, self.group.generation, assignments, now_ms=0)
        self.write(entries)
        if self.group.state is GroupState.STABLE:
            yield f"{member_id} has {_show(self.group.members[member_id].value.assignment)}"
        else:
            yield f"{member_id} waits for its assignment"

    def do_heartbeat(self, words: list[str]) -> Iterator[str]:
        (alias, *_), options = split_options(words)
        generation = int(options.get("generation", self.group.generation))
        self.group.heartbeat(self.ids[alias], generation, self.now_s, instance=options.get("instance", ""))
        yield "ok"

    def do_leave(self, words: list[str]) -> Iterator[str]:
        self.group.leave(self.ids.pop(words[0]), self.now_s)
        yield from self.advance()
        if self.group.state is GroupState.PREPARING:
            yield "rebalancing"

    def do_commit(self, words: list[str]) -> Iterator[str]:
        (alias, *_), options = split_options(words)
        generation = int(options.pop("generation", self.group.generation))
        if alias == "nobody":
            self.group.check_commit(Commit("", -1))
        else:
            self.group.check_commit(Commit(self.ids[alias], generation))
            self.group.members[self.ids[alias]].touch(self.now_s)
        offsets = {_partition(name): OffsetValue(int(offset)) for name, offset in options.items()}
        self.write(self.group.offsets.decide_commit(offsets))
        yield "committed"

    def do_offsets(self, _words: list[str]) -> Iterator[str]:
        for partition, value in sorted(self.group.offsets.committed.items()):
            yield f"{partition.topic}:{partition.partition} at {value.offset}"

    def do_pass(self, words: list[str]) -> Iterator[str]:
        """Let time pass, stopping wherever something is due."""
        end_s = self.now_s + float(words[0])
        while (due_s := self.group.next_deadline_s()) is not None and due_s <= end_s:
            self.now_s = max(self.now_s, due_s)
            for member_id in self.group.expire(self.now_s):
                yield f"{self.now_s:.1f} s: {member_id} timed out"
            for line in self.advance():
                yield f"{self.now_s:.1f} s: {line}"
        self.now_s = end_s

    def do_crash(self, _words: list[str]) -> Iterator[str]:
        """Forget everything but the log."""
        self.table = GroupTable(GroupLimits())
        self.table.apply(self.log)
        self.waiting.clear()
        self.group.begin_sessions(self.now_s)
        yield f"{self.group.state.value}, {self.describe()}"

    def do_state(self, _words: list[str]) -> Iterator[str]:
        yield f"{self.group.state.value}, {self.describe()}"

    def new_id(self, alias: str) -> str:
        self.given[alias] = self.given.get(alias, 0) + 1
        return alias if self.given[alias] == 1 else f"{alias}.{self.given[alias]}"


def _partition(name: str) -> TopicPartition:
    topic, number = name.split(":")
    return TopicPartition(topic, int(number))


def _show(assignment: bytes) -> str:
    topics = by_topic(parse_assignment(assignment))
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items()) or "nothing"
