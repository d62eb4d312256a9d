"""The commands of the scenarios in scenarios/consumer_groups: a group, its log and a clock, and nothing else.

`beat` is a heartbeat. It reports the owned partitions only with `has=`, as real members do when these have changed;
`epoch=` is that of the last response unless set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.unit.coordination.scripts import Command, split_options

from flymq.coordination.consumer_group import IS_AWAY, JOINS, LEAVES, ConsumerGroup, Heartbeat
from flymq.coordination.entries import Entry, OffsetValue
from flymq.coordination.group import Commit, Group, GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.model.names import TopicPartition, by_topic

LIMITS = GroupLimits(consumer_session_timeout_ms=45_000, members_max=3)


class ConsumerGroupScript:
    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.table = GroupTable(LIMITS)
        self.topics: dict[str, int] = {}
        self.now_s = 0.0
        self.told: dict[str, int] = {}

    def find(self, name: str) -> Command:
        command: Command = getattr(self, f"do_{name.replace('-', '_')}")
        return command

    @property
    def group(self) -> ConsumerGroup:
        group = self.table.get("g")
        assert isinstance(group, ConsumerGroup)
        return group

    def write(self, entries: list[Entry]) -> bool:
        self.table.check(entries)
        self.log += entries
        self.table.apply(entries)
        return bool(entries)

    def assign(self) -> None:
        self.write(self.group.decide_targets(self.topics, now_ms=int(self.now_s * 1000)))
        self.group.begin_sessions(self.now_s)

    def beat(self, beat: Heartbeat) -> Iterator[str]:
        found = self.table.find("g")
        (found if isinstance(found, ConsumerGroup) else ConsumerGroup("g", LIMITS)).check(beat)
        self.write(self.table.decide_type("g", ConsumerGroup, now_ms=0))
        group = self.group
        if self.write(group.decide_member(beat)):
            self.assign()
        is_told = self.write(group.decide_step(beat.member_id, beat.owned)) or beat.owned is not None
        member = group.members[beat.member_id]
        group.touch(member, self.now_s)
        group.begin_sessions(self.now_s)
        self.told[beat.member_id] = member.value.epoch
        assignment = f": {_show(member.value.assigned)}" if is_told else ", unchanged"
        yield f"{beat.member_id} at {member.value.epoch}{assignment}"

    # --- commands

    def do_topics(self, words: list[str]) -> Iterator[str]:
        topics = {name: int(count) for name, count in split_options(words)[1].items()}
        changed = [name for name in {*topics, *self.topics} if topics.get(name) != self.topics.get(name)]
        self.topics = topics
        group = self.table.find("g")
        if isinstance(group, ConsumerGroup) and any(map(group.is_concerned_by, changed)):
            before = group.generation
            self.assign()
            if group.generation > before:
                yield f"epoch {group.generation}"

    def do_join(self, words: list[str]) -> Iterator[str]:
        (name, *_), options = split_options(words)
        topics = options.get("topics", "" if "pattern" in options else "orders")
        subscribes = options.get("subscribes") != "no"
        return self.beat(
            Heartbeat(
                name,
                JOINS,
                options.get("instance", ""),
                rebalance_timeout_ms=30_000,
                topics=(tuple(topics.split(",")) if topics else ()) if subscribes else None,
                pattern=options.get("pattern", "") if subscribes else None,
                assignor=options.get("assignor"),
                owned=frozenset(),
            )
        )

    def do_beat(self, words: list[str]) -> Iterator[str]:
        (name, *_), options = split_options(words)
        topics = options.get("topics")
        return self.beat(
            Heartbeat(
                name,
                int(options.get("epoch", self.told.get(name, 1))),
                options.get("instance", ""),
                topics=None if topics is None else tuple(topics.split(",")),
                pattern=options.get("pattern"),
                assignor=options.get("assignor"),
                owned=_partitions(options["has"]) if "has" in options else None,
            )
        )

    def do_leave(self, words: list[str]) -> Iterator[str]:
        self.group.check(Heartbeat(words[0], LEAVES))
        self.write(self.group.decide_leave(words[0]))
        self.assign()
        yield f"{words[0]} is gone"

    def do_away(self, words: list[str]) -> Iterator[str]:
        (name, *_), options = split_options(words)
        self.group.check(Heartbeat(name, IS_AWAY, options.get("instance", "")))
        self.write(self.group.decide_away(name))
        yield f"{name} is away"

    def do_commit(self, words: list[str]) -> Iterator[str]:
        (name, *_), options = split_options(words)
        epoch = int(options.pop("epoch", self.told.get(name, -1)))
        offsets = {_partition(name): OffsetValue(int(offset)) for name, offset in options.items()}
        self.table.get("g").check_commit(Commit("" if name == "nobody" else name, epoch, partitions=offsets))
        self.write(self.table.get("g").offsets.decide_commit(offsets))
        yield "committed"

    def do_pass(self, words: list[str]) -> Iterator[str]:
        """Let time pass, stopping wherever something is due."""
        end_s = self.now_s + float(words[0])
        while (due_s := self.group.next_deadline_s()) is not None and due_s <= end_s:
            self.now_s = max(self.now_s, due_s)
            for member_id in self.group.overdue(self.now_s):
                self.write(self.group.decide_leave(member_id))
                yield f"{self.now_s:.0f} s: {member_id} timed out"
            self.assign()
        self.now_s = end_s

    def do_crash(self, words: list[str]) -> Iterator[str]:
        """Forget everything but the log."""
        self.table = GroupTable(LIMITS)
        self.table.apply(self.log)
        self.assign()
        return self.do_state(words)

    def do_become(self, words: list[str]) -> Iterator[str]:
        """Members of the other protocol come, or these do."""
        type_ = Group if words[0] == "classic" else ConsumerGroup
        self.write(self.table.decide_type("g", type_, now_ms=0))
        group = self.table.get("g")
        committed = ", ".join(f"{_show([name])} at {value.offset}" for name, value in group.offsets.committed.items())
        yield f"{words[0]}, number {group.generation}, has read {committed or 'nothing'}"

    def do_state(self, _words: list[str]) -> Iterator[str]:
        group = self.group
        yield f"{group.state.value}, epoch {group.generation} by {group.assignor or 'nothing yet'}"
        for name, member in group.members.items():
            value = member.value
            parts = [f"{name} at {value.epoch} has {_show(value.assigned)}"]
            parts += [f"gives up {_show(value.revoking)}"] if value.revoking else []
            parts += [] if member.is_at_target else [f"is to have {_show(value.target)}"]
            yield ", ".join(parts)


def _partition(name: str) -> TopicPartition:
    topic, number = name.split(":")
    return TopicPartition(topic, int(number))


def _partitions(names: str) -> frozenset[TopicPartition]:
    return frozenset(map(_partition, names.split(","))) if names else frozenset()


def _show(partitions: Iterable[TopicPartition]) -> str:
    topics = by_topic(sorted(partitions))
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items()) or "nothing"
