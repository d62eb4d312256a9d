"""What the controller does to a partition, from the image alone: pure.

A broker that registers is taken in in two steps. First every partition is adapted as if it were dead, and without it in
sync if it may have lost records; once that is in the store, it is admitted, and partitions may use it. So whoever
counts on a live broker counts on one whose losses are known.

Partitions are looked at one after the other, while the image goes on. That is enough, because once a partition is
adapted to a registration, nothing takes it back before the admission: whoever lets a broker lead, or adds it to the
in-sync replicas, compares its registration in the same txn, and uses only a registration that was admitted. What was
written before the registration is in an image that knows the registration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from flymq.cluster.brokers import ClusterBroker, Kept, registration_key
from flymq.cluster.catalog import NO_LEADER, PartitionState
from flymq.cluster.elections import adapt, finish_reassignment, lose, move_away, prefer, reassign
from flymq.cluster.image import Topic
from flymq.cluster.members import Members
from flymq.metadata.store import Compare, created_at
from flymq.model.delivery import Persistence, UncleanElection

INTERNAL_REPLICAS = 3
"""Of each partition of an internal topic, as soon as there are so many brokers."""
_NOBODY: frozenset[int] = frozenset()

_NEEDED = {
    Persistence.MEMORY: Kept.EVERYTHING,
    Persistence.DISK: Kept.WRITTEN,
    Persistence.FSYNC: Kept.SYNCED,  # nothing is committed before it is on the disks of the in-sync replicas
}
"""What a broker must have kept, so that no committed record of a topic is lost."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The brokers at one revision, as far as leaders and in-sync replicas depend on them."""

    live: frozenset[int]
    """Those that may lead and be in sync."""
    draining: frozenset[int]
    """Live ones that are about to stop."""
    lossy: Mapping[Persistence, frozenset[int]]
    """Not admitted yet, and they may have lost records of topics with this persistence."""
    joining: Mapping[int, int]
    """Broker → epoch of its registration: to be admitted when all partitions are adapted."""
    epochs: Mapping[int, int]
    """Broker → epoch, of the live ones."""
    failed: Mapping[tuple[UUID, int], frozenset[int]]
    """Topic id and partition → the brokers whose logs of it have failed."""
    racks: Mapping[int, str]
    """Broker → rack, of the live ones."""

    @classmethod
    def of(cls, members: Members) -> Roster:
        new = [broker for broker in members if not broker.is_admitted]
        live = [broker for broker in members if broker.is_live]
        return cls(
            live=frozenset(broker.broker_id for broker in live),
            draining=frozenset(broker.broker_id for broker in live if broker.registration.is_draining),
            lossy={persistence: _lossy(new, needed) for persistence, needed in _NEEDED.items()} if new else {},
            joining={broker.broker_id: broker.epoch for broker in new},
            epochs={broker.broker_id: broker.epoch for broker in live},
            failed=_failed(live),
            racks={broker.broker_id: broker.registration.rack for broker in live},
        )

    def live_for(self, topic_id: UUID, partition: int) -> frozenset[int]:
        """Return the brokers that may lead this partition and be in sync."""
        return self.live - self.failed.get((topic_id, partition), _NOBODY) if self.failed else self.live

    def is_registered(self, broker_id: int) -> Compare:
        """Return the condition that a live broker has not been restarted since."""
        return created_at(registration_key(broker_id), self.epochs[broker_id])


@dataclass(frozen=True, slots=True)
class StateChange:
    """A partition whose state is to be changed."""

    topic_id: UUID
    partition: int
    before: PartitionState
    after: PartitionState

    @property
    def elected(self) -> int | None:
        """The broker that is made the leader, if any."""
        after = self.after
        return None if after.leader in (self.before.leader, NO_LEADER) else after.leader

    @property
    def relies_on(self) -> set[int]:
        """The brokers that must not have been restarted meanwhile: the new leader, and who has to replace others."""
        elected = set() if self.elected is None else {self.elected}
        if self.after.replicas == self.before.replicas or set(self.before.replicas).issubset(self.after.replicas):
            return elected
        return elected.union(self.after.isr)

    @property
    def is_unclean(self) -> bool:
        """Whether a broker is made the leader that may lack committed records."""
        return self.elected is not None and self.elected not in (*self.before.isr, *self.before.elr)


def plan_partition(topic: Topic, number: int, roster: Roster) -> PartitionState:
    """Return the state that a partition should have; the same one if nothing is to be done."""
    state, live = topic.partitions[number], roster.live_for(topic.topic_id, number)
    if _is_settled(state, live, roster.draining):
        return _grown(state, number, roster) if topic.is_internal else state
    min_isr = topic.config.min_insync_replicas
    if lossy := roster.lossy.get(topic.config.persistence):
        state = lose(state, lossy)
    state = adapt(state, live, min_isr=min_isr, unclean=_may_lose(topic, state, roster))
    for broker_id in sorted(roster.draining):
        state = move_away(state, broker_id, live - roster.draining, min_isr=min_isr)
    return finish_reassignment(state, live, min_isr=min_isr)


def plan_preferred(topic: Topic, number: int, roster: Roster) -> PartitionState:
    """Return the same, with the preferred leader if nothing else is to be done."""
    before, after = topic.partitions[number], plan_partition(topic, number, roster)
    return prefer(after, roster.live_for(topic.topic_id, number) - roster.draining) if after is before else after


def _may_lose(topic: Topic, state: PartitionState, roster: Roster) -> bool:
    """Whether a leader may be elected that lacks records; not while a broker that has them is joining."""
    allowed = topic.config.unclean_election is UncleanElection.IF_NEEDED
    return allowed and roster.joining.keys().isdisjoint((*state.isr, *state.elr))


def _is_settled(state: PartitionState, live: frozenset[int], draining: frozenset[int]) -> bool:
    """Whether there is certainly nothing to do: nearly always, so this has to be quick."""
    isr = state.isr
    if state.elr or state.adding or state.removing:
        return False
    return state.leader in isr and live.issuperset(isr) and draining.isdisjoint(isr)


def _lossy(new: Iterable[ClusterBroker], needed: Kept) -> frozenset[int]:
    return frozenset(broker.broker_id for broker in new if broker.registration.kept < needed)


def _grown(state: PartitionState, number: int, roster: Roster) -> PartitionState:
    """Add replicas to a partition of an internal topic, which was created when there were fewer brokers."""
    replicas, steady = list(state.replicas), sorted(roster.live - roster.draining)
    while len(replicas) < INTERNAL_REPLICAS:
        used = {roster.racks.get(broker, "") for broker in replicas}
        others = [broker for broker in steady if broker not in replicas]
        fresh = [broker for broker in others if roster.racks[broker] not in used] or others
        if not fresh:
            break
        replicas.append(fresh[number % len(fresh)])
    if len(replicas) == len(state.replicas):
        return state
    first = number % len(replicas)  # not all of them should be led by the broker that has created the topic
    return reassign(state, replicas[first:] + replicas[:first], roster.live)


def _failed(live: Iterable[ClusterBroker]) -> dict[tuple[UUID, int], frozenset[int]]:
    failed: dict[tuple[UUID, int], frozenset[int]] = {}
    for broker in live:
        for topic_id, numbers in broker.registration.failed.items():
            for number in numbers:
                at = UUID(topic_id), number
                failed[at] = failed.get(at, _NOBODY) | {broker.broker_id}
    return failed
