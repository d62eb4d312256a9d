"""Whatever members of a consumer group do and whatever is lost: no two read the same, and the log tells all of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.coordination.test_coordination_replay import Log

from flymq.coordination.consumer_group import IS_AWAY, JOINS, LEAVES, ConsumerGroup, Heartbeat
from flymq.coordination.entries import Entry
from flymq.coordination.group import GroupLimits, GroupState
from flymq.coordination.groups import GroupTable
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition

LIMITS = GroupLimits(consumer_session_timeout_ms=5_000)
names = st.sampled_from(["a", "b"])
topics = st.sets(st.sampled_from(["t", "u", "nowhere"]), min_size=1)


@dataclass
class Client:
    """What a member knows of itself."""

    member_id: str
    instance: str = ""
    epoch: int = JOINS
    wanted: tuple[str, ...] = ("t",)
    pattern: str = ""
    reads: set[TopicPartition] = field(default_factory=set)
    told: set[TopicPartition] = field(default_factory=set)
    """What it may read. It takes its time to stop with the rest."""
    must_tell: bool = True

    def let_go(self) -> None:
        """Stop with what it may not read any more; only then begin with what is new."""
        self.must_tell |= self.reads != self.told
        self.reads = set(self.told)


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.table = GroupTable(LIMITS)
        self.topics = {"t": 3, "u": 1}
        self.now_s = 0.0
        self.clients: dict[str, Client] = {}
        self.started = 0
        self.last_epoch = 0

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.table.find("g")
        return group if isinstance(group, ConsumerGroup) else None

    def write(self, entries: list[Entry]) -> bool:
        if entries:
            self.table.check(entries)
            self.table.apply(self.log.append(entries))
        return bool(entries)

    def assign(self) -> None:
        if (group := self.group) is not None and group.members:
            self.write(group.decide_targets(self.topics, now_ms=1))
            group.begin_sessions(self.now_s)

    def speak(self, client: Client, *, is_heard: bool = True) -> None:
        """One heartbeat, as a client of Kafka's sends it; its answer may be lost."""
        is_joining = client.epoch == JOINS
        is_full = is_joining or client.must_tell
        beat = Heartbeat(
            client.member_id,
            client.epoch,
            client.instance,
            rebalance_timeout_ms=3_000 if is_full else None,
            topics=client.wanted if is_full else None,
            pattern=client.pattern if is_full else None,
            owned=frozenset(client.reads) if is_full else None,
        )
        client.must_tell = True
        try:
            (self.group or ConsumerGroup("g", LIMITS)).check(beat)
            self.write(self.table.decide_type("g", ConsumerGroup, now_ms=1))
        except FlyMQError:
            client.reads, client.told = set(), set()
            client.epoch = JOINS
            return
        group = self.group
        assert group is not None
        if self.write(group.decide_member(beat)):
            self.assign()
        is_told = self.write(group.decide_step(beat.member_id, beat.owned)) or beat.owned is not None
        member = group.members[beat.member_id]
        group.touch(member, self.now_s)
        group.begin_sessions(self.now_s)
        if is_heard:
            client.epoch = member.value.epoch
            client.must_tell = False
            if is_told:
                client.told = set(member.value.assigned)
                if client.reads <= client.told:
                    client.let_go()

    @initialize()
    def start_both(self) -> None:
        for name in ("a", "b"):
            self.start(name, {"t", "u"}, "", False)

    @rule(name=names, wanted=topics, pattern=st.sampled_from(["", "u|t", "x.*"]), is_static=st.booleans())
    def start(self, name: str, wanted: set[str], pattern: str, is_static: bool) -> None:
        """A program starts, perhaps instead of one that has died without a word."""
        self.started += 1
        instance = f"static-{name}" if is_static else ""
        client = self.clients[name] = Client(f"{name}-{self.started}", instance, wanted=tuple(wanted), pattern=pattern)
        self.speak(client)

    @rule(beats=st.lists(st.tuples(names, st.booleans()), min_size=2, max_size=6))
    def beat(self, beats: list[tuple[str, bool]]) -> None:
        for name, is_heard in beats:
            if (client := self.clients.get(name)) is not None:
                self.speak(client, is_heard=is_heard)
                self.nobody_reads_what_another_member_reads()

    @rule(name=names)
    def let_go(self, name: str) -> None:
        if (client := self.clients.get(name)) is not None:
            client.let_go()

    @rule(name=names, wanted=topics)
    def resubscribe(self, name: str, wanted: set[str]) -> None:
        if (client := self.clients.get(name)) is not None:
            client.wanted, client.must_tell = tuple(wanted), True

    @rule(name=names, is_coming_back=st.booleans())
    def stop(self, name: str, is_coming_back: bool) -> None:
        client, group = self.clients.pop(name, None), self.group
        if client is None or group is None:
            return
        is_away = is_coming_back and bool(client.instance)
        try:
            group.check(Heartbeat(client.member_id, IS_AWAY if is_away else LEAVES, client.instance))
        except FlyMQError:
            return
        self.write(group.decide_away(client.member_id) if is_away else group.decide_leave(client.member_id))
        self.assign()

    @rule(partitions=st.fixed_dictionaries({"t": st.integers(0, 4), "u": st.integers(0, 2)}))
    def change_topics(self, partitions: dict[str, int]) -> None:
        for name in partitions:
            if partitions[name] < self.topics.get(name, 0):  # partitions never go but with their topic
                self.topics.pop(name)
                self.assign()
                for client in self.clients.values():
                    client.reads = {each for each in client.reads if each.topic != name}
                    client.told = {each for each in client.told if each.topic != name}
        self.topics = {name: count for name, count in partitions.items() if count}
        self.assign()

    @rule(seconds=st.sampled_from([1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        group = self.group
        if group is not None and (overdue := group.overdue(self.now_s)):
            self.write([entry for name in overdue for entry in group.decide_leave(name)])
            self.assign()

    @rule()
    def crash(self) -> None:
        self.table = GroupTable(LIMITS)
        self.table.apply(self.log.all())
        self.assign()

    @rule()
    def settle(self) -> None:
        """Left alone, the group comes to rest, and everything that is wanted is read by somebody."""
        for _ in range(6):
            for client in self.clients.values():
                self.speak(client)
                client.let_go()
        group = self.group
        without_client = set(group.members) - {client.member_id for client in self.clients.values()} if group else set()
        if group is None or without_client or not group.members:
            return
        assert group.state is GroupState.STABLE
        wanted = {topic for client in self.clients.values() for topic in client.wanted}
        wanted |= {"t", "u"} if any(client.pattern == "u|t" for client in self.clients.values()) else set()
        known = {client.member_id for client in self.clients.values()} & set(group.members)
        if len(known) == len(self.clients):
            read = {each for client in self.clients.values() for each in client.reads}
            assert read == {TopicPartition(topic, n) for topic in wanted for n in range(self.topics.get(topic, 0))}

    @invariant()
    def nobody_reads_what_another_member_reads(self) -> None:
        members = {} if self.group is None else self.group.members
        read = [each for client in self.clients.values() if client.member_id in members for each in client.reads]
        assert len(read) == len(set(read))

    @invariant()
    def a_replay_gives_the_same_state(self) -> None:
        replayed = GroupTable(LIMITS)
        replayed.apply(self.log.all())
        assert replayed.entries() == self.table.entries()
        assert self.log.compacted() == self.table.entries()

    @invariant()
    def epochs_only_grow(self) -> None:
        if (group := self.group) is not None:
            assert group.generation >= self.last_epoch
            self.last_epoch = group.generation


ConsumerGroupMachine.TestCase.settings = settings(stateful_step_count=20)
TestConsumerGroups = ConsumerGroupMachine.TestCase
