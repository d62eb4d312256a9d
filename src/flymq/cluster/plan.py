"""What the controller has to do, from the image alone: pure.

A broker that registers is taken in in two steps. First every partition is adapted as if it were dead, and without it in
sync if it may have lost records; once that is in the store, it is admitted, and partitions may use it. So whoever
counts on a live broker counts on one whose losses are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from flymq.cluster.catalog import PartitionState
from flymq.cluster.elections import adapt, lose, move_away, prefer
from flymq.cluster.image import Image, Topic
from flymq.cluster.members import Members


@dataclass(frozen=True, slots=True)
class StateChange:
    """A partition whose state is to be changed."""

    topic_id: UUID
    partition: int
    before: PartitionState
    after: PartitionState


@dataclass(frozen=True, slots=True)
class Plan:
    """The next step of the controller. `admissions` are due when all `changes` are in the store."""

    changes: list[StateChange]
    admissions: dict[int, int]
    """Broker → epoch."""

    def __bool__(self) -> bool:
        return bool(self.changes or self.admissions)


def make_plan(image: Image, *, prefers_leaders: bool = False) -> Plan:
    """Return what has to be done now. With `prefers_leaders`, preferred leaders come back, too."""
    members = image.members
    live = members.live
    new = {broker.broker_id: broker.epoch for broker in members if not broker.is_admitted}
    lossy = {broker.broker_id for broker in members if not broker.is_admitted and not broker.registration.was_clean}
    changes = []
    for topic in image:
        for number, before in enumerate(topic.partitions):
            after = _adapted(topic, before, members, live, lossy)
            if prefers_leaders and after is before:
                after = prefer(after, _not_draining(members, live))
            if after is not before:
                changes.append(StateChange(topic.topic_id, number, before, after))
    return Plan(changes, new)


def _adapted(
    topic: Topic, state: PartitionState, members: Members, live: frozenset[int], lossy: set[int]
) -> PartitionState:
    min_isr = topic.config.min_insync_replicas
    if lossy:
        state = lose(state, lossy)
    state = adapt(state, live, min_isr=min_isr)
    for broker_id in _draining(members, live):
        state = move_away(state, broker_id, _not_draining(members, live), min_isr=min_isr)
    return state


def _draining(members: Members, live: frozenset[int]) -> Iterator[int]:
    return (broker.broker_id for broker in members if broker.registration.is_draining and broker.broker_id in live)


def _not_draining(members: Members, live: frozenset[int]) -> frozenset[int]:
    return live.difference(_draining(members, live))
