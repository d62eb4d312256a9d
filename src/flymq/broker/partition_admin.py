"""Elect leaders and move replicas on request, by a txn of the metadata store, from any broker.

The controller keeps partitions adapted to the brokers by itself (cluster/plan.py), and ends reassignments; here is what
an operator asks for. A call returns when the change is in the image of this broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from flymq.cluster.catalog import CLUSTER_KEY, PartitionState
from flymq.cluster.elections import adapt, cancel_reassignment, prefer, reassign
from flymq.cluster.image import Image, Topic
from flymq.cluster.placement import resize
from flymq.cluster.plan import Roster, StateChange
from flymq.cluster.state_changes import write_changes
from flymq.host.time_slices import TimeSlice
from flymq.metadata.store import MetadataStore
from flymq.model.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    FlyMQError,
    InvalidReplicaAssignment,
    MetadataUnavailable,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
)
from flymq.model.names import TopicPartition

logger = logging.getLogger(__name__)

Outcomes = dict[TopicPartition, FlyMQError | None]
"""Why the change of a partition was not made; None: it was."""
Decision = Callable[[Topic, int, PartitionState, Roster], PartitionState]


class PartitionAdmin:
    """Changes leaders and replicas of partitions."""

    def __init__(self, store: MetadataStore, image: Image, broker_id: int) -> None:
        self._store = store
        self._image = image
        self._broker_id = broker_id
        self.unclean_elections = 0
        """Leaders elected here that may lack committed records."""

    # --- leaders

    async def elect(self, partitions: Iterable[TopicPartition], *, unclean: bool = False) -> Outcomes:
        """Let the preferred leaders lead; if `unclean`, let any replica lead where nobody does."""
        return await self._change(partitions, _decide_unclean if unclean else _decide_preferred)

    # --- replicas

    async def reassign(self, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Begin to move partitions to these brokers, the preferred leader first; None cancels what is under way.

        The controller ends a reassignment when the new replicas are in sync.
        """

        def decide(topic: Topic, number: int, state: PartitionState, roster: Roster) -> PartitionState:
            target = replicas[TopicPartition(topic.name, number)]
            if target is None:
                return _decide_cancel(state, roster)
            self._check_target(target, state)
            return reassign(state, target, roster.live_for(topic.topic_id, number))

        return await self._change(replicas, decide)

    async def place(self, name: str, replication_factor: int = 0, brokers: Sequence[int] = ()) -> Outcomes:
        """Begin to give each partition of a topic so many replicas; 0: as many as now.

        `brokers`: only on these; if not given, replicas stay where they are, and others are added on all brokers.
        """
        topic = self._image.get(name)
        replication_factor = replication_factor or topic.replication_factor
        if replication_factor > len(self._racks()):  # a broker may just have joined
            await self._image.until((await self._store.range(CLUSTER_KEY)).revision)
        racks = self._racks()
        if unknown := sorted(set(brokers) - racks.keys()):
            raise InvalidReplicaAssignment(f"there is no broker {unknown[0]}; there are {sorted(racks)}")
        now = [state.target for state in topic.partitions]
        if brokers:
            placed = resize(now, {broker: racks[broker] for broker in brokers}, replication_factor)
        else:  # a replica on a broker that is away is not given up for that
            away = {replica for replicas in now for replica in replicas} - racks.keys()
            placed = resize(now, racks, replication_factor, away=away)
        return await self.reassign({TopicPartition(name, number): each for number, each in enumerate(placed)})

    def _racks(self) -> dict[int, str]:
        """Return the brokers that replicas can be placed on, with their racks."""
        members = self._image.members
        if not len(members):
            return {self._broker_id: ""}
        usable = (each for each in members if each.is_live and not each.registration.is_draining)
        return {each.broker_id: each.registration.rack for each in usable}

    def reassignments(self) -> dict[TopicPartition, PartitionState]:
        """Return the partitions whose replicas are being moved."""
        return {
            TopicPartition(topic.name, number): state
            for topic in self._image
            for number, state in enumerate(topic.partitions)
            if state.adding or state.removing
        }

    def _check_target(self, target: Sequence[int], state: PartitionState) -> None:
        known = {member.broker_id for member in self._image.members} or {self._broker_id}
        if not target or len(set(target)) != len(target):
            raise InvalidReplicaAssignment(f"the replicas {list(target)} are none, or name a broker twice")
        if strangers := sorted(set(target) - known - set(state.replicas)):
            raise InvalidReplicaAssignment(f"there is no broker {strangers[0]}")

    # --- change

    async def _change(self, partitions: Iterable[TopicPartition], decide: Decision) -> Outcomes:
        roster = self._roster()
        outcomes: Outcomes = {}
        changes: dict[TopicPartition, StateChange] = {}
        slice_ = TimeSlice()
        for name in partitions:
            await slice_.yield_if_over()
            try:
                topic = self._image.get(name.topic)
                before = topic.state(name.partition)
                after = decide(topic, name.partition, before, roster)
                outcomes[name] = None
                if after != before:
                    changes[name] = StateChange(topic.topic_id, name.partition, before, after)
            except FlyMQError as error:
                outcomes[name] = error
        written = await write_changes(self._store, list(changes.values()), roster)
        made = {(change.topic_id, change.partition) for change in written.changes}
        for name, change in changes.items():
            if (change.topic_id, change.partition) in made:
                self.unclean_elections += change.is_unclean
                _log(name, change)
            else:
                outcomes[name] = MetadataUnavailable(f"{name} was changed concurrently", hint="Try again.")
        await self._image.until(written.revision)
        return outcomes

    def _roster(self) -> Roster:
        if len(self._image.members):
            return Roster.of(self._image.members)
        alone = frozenset((self._broker_id,))
        return Roster(alone, frozenset(), {}, {}, {}, {}, {})


def _decide_preferred(topic: Topic, number: int, state: PartitionState, roster: Roster) -> PartitionState:
    if state.leader == state.replicas[0]:
        raise ElectionNotNeeded(f"broker {state.leader} leads {topic.name}-{number}")
    elected = prefer(state, roster.live_for(topic.topic_id, number) - roster.draining)
    if elected is state:
        raise PreferredLeaderNotAvailable(f"broker {state.replicas[0]} is not in sync in {topic.name}-{number}")
    return elected


def _decide_unclean(topic: Topic, number: int, state: PartitionState, roster: Roster) -> PartitionState:
    live = roster.live_for(topic.topic_id, number)
    if state.leader in live:
        raise ElectionNotNeeded(f"broker {state.leader} leads {topic.name}-{number}")
    elected = adapt(state, live, min_isr=topic.config.min_insync_replicas, unclean=True)
    if elected.leader not in live:
        raise EligibleLeadersNotAvailable(f"none of the brokers {state.replicas} of {topic.name}-{number} is there")
    return elected


def _decide_cancel(state: PartitionState, roster: Roster) -> PartitionState:
    if not state.adding and not state.removing:
        raise NoReassignmentInProgress()
    return cancel_reassignment(state, roster.live)


def _log(name: TopicPartition, change: StateChange) -> None:
    if change.is_unclean:
        logger.error(
            "UNCLEAN ELECTION by request: broker %d leads %s and was not in sync; records that only the brokers %s "
            "have are lost",
            change.after.leader,
            name,
            change.before.isr,
        )
    else:
        logger.info("%s: by request %s", name, change.after)
