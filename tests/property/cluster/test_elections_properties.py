"""Whatever happens to brokers, a leader that was elected cleanly has every committed record."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flymq.cluster.catalog import NO_LEADER, PartitionState
from flymq.cluster.elections import adapt, change_isr, lose, move_away, prefer

REPLICAS = (1, 2, 3)
BROKERS = st.sampled_from(REPLICAS)


class Partition(RuleBasedStateMachine):
    """A partition whose records are counted: `ends` is how many each replica has, `committed` how many must stay."""

    def __init__(self) -> None:
        super().__init__()
        self.state = PartitionState(1, 0, list(REPLICAS), list(REPLICAS))
        self.live = set(REPLICAS)
        self.ends = dict.fromkeys(REPLICAS, 0)
        self.committed = 0
        self.min_isr = 2

    def change(self, after: PartitionState) -> None:
        before, self.state = self.state, after
        assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader)
        if after.leader != before.leader and after.leader != NO_LEADER:
            assert self.ends[after.leader] >= self.committed, "a leader lacks committed records"
            for broker in self.live:  # followers cut what the new leader does not have
                self.ends[broker] = min(self.ends[broker], self.ends[after.leader])

    @property
    def is_led(self) -> bool:
        return self.state.leader != NO_LEADER

    @precondition(lambda self: self.is_led)
    @rule(behind=st.sets(BROKERS), gives_up=st.booleans())
    def produce(self, behind: set[int], gives_up: bool) -> None:
        """The leader appends; followers copy, except those that are behind. Then it may give up on these."""
        leader = self.state.leader
        self.ends[leader] += 1
        for broker in self.live - behind:
            self.ends[broker] = max(self.ends[broker], self.ends[leader])
        if gives_up:
            self.leader_shrinks(behind)
        self.commit()

    def commit(self) -> None:
        if len(self.state.isr) >= self.min_isr:
            self.committed = max(self.committed, min(self.ends[broker] for broker in self.state.isr))

    def leader_shrinks(self, left: set[int]) -> None:
        isr = set(self.state.isr) - left | {self.state.leader}
        self.change(change_isr(self.state, isr, min_isr=self.min_isr))

    @precondition(lambda self: self.is_led)
    @rule(broker=BROKERS)
    def leader_expands(self, broker: int) -> None:
        if broker in self.live and self.ends[broker] >= self.committed:
            self.change(change_isr(self.state, {*self.state.isr, broker}, min_isr=self.min_isr))

    @rule(broker=BROKERS)
    def dies(self, broker: int) -> None:
        self.live.discard(broker)
        self.change(adapt(self.state, self.live, min_isr=self.min_isr))

    @rule(broker=BROKERS)
    def comes_back(self, broker: int) -> None:
        if broker not in self.live:
            self.live.add(broker)
            self.change(adapt(self.state, self.live, min_isr=self.min_isr))

    @rule(broker=BROKERS, lost=st.integers(0, 5))
    def comes_back_with_losses(self, broker: int, lost: int) -> None:
        after = lose(self.state, {broker})
        if broker in self.live or broker in after.isr:  # the last one keeps what it has: that is all there is
            return
        self.ends[broker] = max(0, self.ends[broker] - lost)
        self.change(after)
        self.live.add(broker)
        self.change(adapt(self.state, self.live, min_isr=self.min_isr))

    @rule(broker=BROKERS)
    def stops(self, broker: int) -> None:
        if broker in self.live:
            self.change(move_away(self.state, broker, self.live, min_isr=self.min_isr))

    @rule()
    def preferred_leader_returns(self) -> None:
        self.change(prefer(self.state, self.live))

    @precondition(lambda self: self.is_led)
    @rule(min_isr=st.integers(1, 2))
    def setting_changes(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.change(change_isr(self.state, self.state.isr, min_isr=min_isr))
        self.commit()

    @invariant()
    def those_in_sync_have_every_committed_record(self) -> None:
        for broker in (*self.state.isr, *self.state.elr):
            assert self.ends[broker] >= self.committed

    @invariant()
    def the_state_is_in_order(self) -> None:
        state = self.state
        assert state.isr and set(state.isr) <= set(REPLICAS) and not set(state.isr) & set(state.elr)
        assert state.leader == NO_LEADER or state.leader in state.isr


TestPartition = Partition.TestCase
