"""Whatever happens to a coordinator, its log tells all of it: replayed, whole or compacted, it gives the same state."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flymq.coordination.attempts import Attempt, decide_commit_attempts, decide_delete
from flymq.coordination.entries import (
    ALL_KINDS,
    Entry,
    Key,
    OffsetValue,
    ProducerIdentity,
    TransactionValue,
    Unreadable,
    Value,
    encode_entries,
    read_entries,
)
from flymq.coordination.group import Commit, Group, GroupLimits, GroupState, Join
from flymq.coordination.groups import GroupTable
from flymq.coordination.subscriptions import (
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
)
from flymq.coordination.transaction_table import TransactionTable
from flymq.coordination.transactions import (
    check_ongoing,
    decide_add,
    decide_begin,
    decide_complete,
    decide_end,
    decide_init,
)
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition

LIMITS = GroupLimits(quiet_ms=50, quiet_ms_max=200)
TOPICS = {"t": 3, "u": 1}
members = st.sampled_from(["a", "b", "c"])
groups = st.sampled_from(["g", "h"])
partitions = st.sampled_from([TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)])


class Log:
    """Entries in the bytes they have on disk."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def append(self, entries: list[Entry]) -> list[Entry]:
        self.batches.append(bytes(encode_entries(entries, now_ms=1)))
        return entries

    def all(self) -> list[Entry]:
        found = [entry for batch in self.batches for entry in read_entries(batch, ALL_KINDS)]
        assert not any(isinstance(entry, Unreadable) for entry in found)
        return found  # type: ignore[return-value]

    def compacted(self) -> dict[Key, Value]:
        latest = dict(self.all())
        return {key: value for key, value in latest.items() if value is not None}


class GroupsMachine(RuleBasedStateMachine):
    """Members join, leave, time out and commit, in two groups of one partition."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.table = GroupTable(LIMITS)
        self.now_s = 0.0
        self.ids: dict[tuple[str, str], str] = {}
        self.given = 0
        self.last_generation: dict[str, int] = {}

    def find(self, name: str) -> Group | None:
        found = self.table.find(name)
        assert found is None or isinstance(found, Group), "nobody joins with another protocol here"
        return found

    def write(self, entries: list[Entry]) -> None:
        if entries:
            self.table.check(entries)
            self.table.apply(self.log.append(entries))

    def advance(self, name: str) -> None:
        group = self.find(name)
        if group is not None and group.is_ready(self.now_s):
            self.write(group.decide_generation(TOPICS, now_ms=int(self.now_s * 1000)))
            group.begin_sessions(self.now_s)

    @rule(
        name=groups,
        member=members,
        topics=st.lists(st.sampled_from(["t", "u", "nowhere"]), min_size=1, unique=True),
        assignors=st.lists(st.sampled_from(["range", "sticky", "own"]), min_size=1, unique=True),
        is_static=st.booleans(),
        is_native=st.booleans(),
        forgets=st.booleans(),
    )
    def join(
        self,
        name: str,
        member: str,
        topics: list[str],
        assignors: list[str],
        is_static: bool,
        is_native: bool,
        forgets: bool,
    ) -> None:
        group = self.table.get_or_add(name)
        assert isinstance(group, Group)
        wanted = encode_subscription(Subscription(topics))
        join = Join(
            tuple((assignor, wanted) for assignor in assignors),
            "" if forgets else self.ids.get((name, member), ""),
            f"static-{member}" if is_static else "",
            session_timeout_ms=2_000,
            rebalance_timeout_ms=3_000,
            assigned_by_broker=is_native,
        )
        self.given += 1
        new_id = f"{member}-{self.given}"
        try:
            group.check_join(join)
            if (old := group.find_replaced(join)) is not None:
                self.write(group.decide_replace(old, new_id))
                group.replace(old, new_id)
            self.ids[name, member] = group.join(join, new_id, self.now_s)
        except FlyMQError:
            self.table.drop_if_unused(group)
            return
        self.advance(name)

    @rule(name=groups, member=members)
    def sync(self, name: str, member: str) -> None:
        group, member_id = self.find(name), self.ids.get((name, member), "")
        if group is None:
            return
        try:
            group.sync(member_id, group.generation, self.now_s)
        except FlyMQError:
            return
        assignments = {saved: encode_assignment([TopicPartition("t", at)]) for at, saved in enumerate(group.members)}
        self.write(group.decide_assignments(member_id, group.generation, assignments, now_ms=1))

    @rule(name=groups, member=members)
    def leave(self, name: str, member: str) -> None:
        group = self.find(name)
        try:
            if group is not None:
                group.leave(self.ids.get((name, member), ""), self.now_s)
                self.advance(name)
        except FlyMQError:
            return

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        for group in self.table:
            assert isinstance(group, Group)
            group.expire(self.now_s)
            self.advance(group.name)

    @rule(name=groups, member=members, partition=partitions, offset=st.integers(0, 9), age=st.integers(0, 1))
    def commit(self, name: str, member: str, partition: TopicPartition, offset: int, age: int) -> None:
        group = self.find(name)
        member_id = self.ids.get((name, member), "")
        if group is None or not member_id or group.generation < age:
            return
        is_live = member_id in group.members and age == 0 and group.state in (GroupState.STABLE, GroupState.PREPARING)
        try:
            group.check_commit(Commit(member_id, group.generation - age))
        except FlyMQError:
            assert not is_live, "the commit of a live member was refused"
            return
        assert is_live, "the commit of a fenced member was taken"
        self.write(group.offsets.decide_commit({partition: OffsetValue(offset)}))

    @rule(name=groups, producer=st.integers(0, 1), partition=partitions, epoch=st.integers(0, 1))
    def pend(self, name: str, producer: int, partition: TopicPartition, epoch: int) -> None:
        group = self.table.get_or_add(name)
        self.write(group.offsets.decide_pend(ProducerIdentity(producer, epoch), {partition: OffsetValue(7)}))

    @rule(name=groups, producer=st.integers(0, 1), epoch=st.integers(0, 1), committed=st.booleans())
    def end(self, name: str, producer: int, epoch: int, committed: bool) -> None:
        group = self.find(name)
        if group is not None:
            self.write(group.offsets.decide_end(ProducerIdentity(producer, epoch), committed=committed))

    @invariant()
    def a_replay_gives_the_same_state(self) -> None:
        replayed = GroupTable(LIMITS)
        replayed.apply(self.log.all())
        assert replayed.entries() == self.table.entries()
        assert self.log.compacted() == self.table.entries()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        for group in self.table:
            assert isinstance(group, Group)
            owned = [name for saved in group.value.members for name in parse_assignment(saved.assignment)]
            if all(saved.assigned_by_broker for saved in group.value.members):
                assert len(owned) == len(set(owned))

    @invariant()
    def generations_only_grow(self) -> None:
        for group in self.table:
            assert group.generation >= self.last_generation.get(group.name, 0)
            self.last_generation[group.name] = group.generation


class TransactionsMachine(RuleBasedStateMachine):
    """Producers begin, write, end and fence each other; some are attempts of a query."""

    names = st.sampled_from(["p", "q:0:a", "q:0:b", "q:1:a"])

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.table = TransactionTable()
        self.next_id = 0
        self.identities: dict[str, ProducerIdentity] = {}
        self.epochs: dict[int, int] = {}

    def write(self, entries: list[Entry]) -> None:
        if entries:
            self.table.check(entries)
            self.table.apply(self.log.append(entries))

    def ongoing(self, name: str) -> TransactionValue | None:
        try:
            return check_ongoing(name, self.table.find(name), self.identities.get(name, ProducerIdentity(-1, -1)))
        except FlyMQError:
            return None

    @rule(name=names)
    def init(self, name: str) -> None:
        value = self.table.find(name)
        if value is None or value.state.is_idle:
            self.next_id += 1
            self.write(decide_init(name, value, self.next_id, timeout_ms=1, now_ms=1))
            found = self.table.find(name)
            assert found is not None
            self.identities[name] = found.producer

    @rule(name=names)
    def begin(self, name: str) -> None:
        value = self.table.find(name)
        if value is not None:
            try:
                self.write(decide_begin(name, value, now_ms=1))
            except FlyMQError:
                return

    @rule(name=names, partition=partitions, group=groups)
    def add(self, name: str, partition: TopicPartition, group: str) -> None:
        if (value := self.ongoing(name)) is not None:
            self.write(decide_add(name, value, partitions=[partition], groups=[group], now_ms=1))

    @rule(name=names, commit=st.booleans(), keeps_epoch=st.booleans())
    def end(self, name: str, commit: bool, keeps_epoch: bool) -> None:
        if (value := self.ongoing(name)) is not None:
            self.write(decide_end(name, value, commit=commit, keeps_epoch=keeps_epoch, now_ms=1))

    @rule(name=names)
    def complete(self, name: str) -> None:
        value = self.table.find(name)
        if value is not None and value.state.is_ending:
            last_batch = self.table.last_batch("q")
            self.write(decide_delete(name, value, last_batch=last_batch) or decide_complete(name, value, now_ms=1))
            if (after := self.table.find(name)) is not None:
                self.identities[name] = after.producer

    @rule(batch=st.integers(0, 1), listed=st.sets(st.sampled_from(["q:0:a", "q:0:b", "q:1:a"])))
    def commit_attempts(self, batch: int, listed: set[str]) -> None:
        before = self.table.last_batch("q")
        try:
            entries = decide_commit_attempts(
                Attempt("q", batch),
                {name: self.identities.get(name, ProducerIdentity(-1, -1)) for name in listed},
                last_batch=before,
                known=self.table.attempts("q"),
                now_ms=1,
            )
        except FlyMQError:
            return
        self.write(entries)
        assert self.table.last_batch("q") == max(batch, -1 if before is None else before)

    @invariant()
    def a_replay_gives_the_same_state(self) -> None:
        replayed = TransactionTable()
        replayed.apply(self.log.all())
        assert replayed.entries() == self.table.entries()
        assert self.log.compacted() == self.table.entries()
        assert dict(replayed.attempts("q")) == dict(self.table.attempts("q"))

    @invariant()
    def epochs_only_grow(self) -> None:
        for _, value in self.table:
            producer_id, epoch = value.producer
            assert epoch >= self.epochs.get(producer_id, 0)
            self.epochs[producer_id] = epoch


for _machine in (GroupsMachine, TransactionsMachine):
    _machine.TestCase.settings = settings(stateful_step_count=40)

TestGroups = GroupsMachine.TestCase
TestTransactions = TransactionsMachine.TestCase
