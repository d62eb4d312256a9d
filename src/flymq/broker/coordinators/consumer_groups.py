"""Groups of the consumer protocol (KIP-848): heartbeats in, assignments out.

The decisions of one heartbeat are written in small steps, each of them a state from which the group can continue after
a crash; the member gets its response when the last one is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flymq.broker.coordinators.deadlines import Deadlines
from flymq.broker.coordinators.state_log import StateLog
from flymq.broker.safety import Safe
from flymq.cluster.catalog import Scope
from flymq.cluster.image import Image
from flymq.coordination.consumer_group import IS_AWAY, JOINS, LEAVES, ConsumerGroup, Heartbeat
from flymq.coordination.entries import Entry
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.host.clock import Clock
from flymq.host.entropy import Entropy, new_id
from flymq.model.errors import InvalidRequest
from flymq.model.group_settings import CONSUMER_HEARTBEAT, CONSUMER_SESSION_TIMEOUT
from flymq.model.names import TopicPartition


@dataclass(slots=True)
class Place:
    """The response to a heartbeat: member epoch and assignment; None: the assignment has not changed."""

    member_id: str
    epoch: int
    assignment: tuple[TopicPartition, ...] | None = None


class ConsumerGroups:
    """Membership in groups of this type; `Groups` has their offsets."""

    def __init__(
        self, log: StateLog[GroupTable], image: Image, clock: Clock, entropy: Entropy, limits: GroupLimits
    ) -> None:
        self.limits = limits
        self._log = log
        self._image = image
        self._clock = clock
        self._entropy = entropy
        self._deadlines = Deadlines(clock, self._look_at)
        self._unassigned: set[str] = set()  # groups whose new targets could not be written
        self.rebalances = 0
        """Number of changes of target assignments since the start."""

    def loaded(self, table: GroupTable) -> None:
        """Continue after the log was replayed."""
        for group in table:
            if isinstance(group, ConsumerGroup) and group.members:
                self._assign(group)

    def close(self) -> None:
        self._deadlines.close()

    def limits_of(self, name: str) -> GroupLimits:
        """Return the limits of a group, which may have settings of its own."""
        own = self._image.settings_of(Scope.GROUP, name)
        if not own:
            return self.limits
        return replace(
            self.limits,
            consumer_session_timeout_ms=int(own.get(CONSUMER_SESSION_TIMEOUT, self.limits.consumer_session_timeout_ms)),
            consumer_heartbeat_ms=int(own.get(CONSUMER_HEARTBEAT, self.limits.consumer_heartbeat_ms)),
        )

    def heartbeat(self, name: str, beat: Heartbeat) -> tuple[Place, Safe]:
        """Process a heartbeat, by which a member joins, stays, changes or leaves."""
        if not beat.member_id and beat.epoch == JOINS:  # older clients do not choose their id
            beat = replace(beat, member_id=str(new_id(self._entropy)))
        if not name or not beat.member_id:
            raise InvalidRequest("the group id and the member id must not be empty")
        table = self._log.table(name)
        found = table.find(name)
        (found if isinstance(found, ConsumerGroup) else ConsumerGroup(name, self.limits)).check(beat)
        if entries := table.decide_type(name, ConsumerGroup, self._clock.now_ms()):
            self._write(name, entries)
        group = table.get(name)
        assert isinstance(group, ConsumerGroup)
        group.limits = self.limits_of(name)
        if beat.epoch in (LEAVES, IS_AWAY):
            return self._leave(group, beat), self._safe(name)
        if entries := group.decide_member(beat):
            self._write(name, entries)
        if entries or name in self._unassigned:
            self._assign(group)
        entries = group.decide_step(beat.member_id, beat.owned)
        if entries:
            self._write(name, entries)
        member = group.members[beat.member_id]
        group.touch(member, self._clock.monotonic_s())
        self._watch(group)
        is_told = bool(entries) or beat.owned is not None
        place = Place(beat.member_id, member.value.epoch, member.value.assigned if is_told else None)
        return place, self._safe(name)

    def topic_changed(self, group: ConsumerGroup, topic: str) -> None:
        """A topic was created, deleted or extended."""
        if group.is_concerned_by(topic):
            self._assign(group)

    def _leave(self, group: ConsumerGroup, beat: Heartbeat) -> Place:
        if beat.epoch == IS_AWAY:
            self._write(group.name, group.decide_away(beat.member_id))
        else:
            self._write(group.name, group.decide_leave(beat.member_id))
            self._assign(group)
        return Place(beat.member_id, beat.epoch)

    def _look_at(self, name: str) -> float | None:
        """Remove the members that timed out; return the next deadline."""
        table = self._log.find_table(self._log.number_of(name))
        group = None if table is None else table.find(name)
        if not isinstance(group, ConsumerGroup):
            return None
        if overdue := group.overdue(self._clock.monotonic_s()):
            self._write(name, [entry for member_id in overdue for entry in group.decide_leave(member_id)])
        if overdue or name in self._unassigned:
            self._assign(group)
        return group.next_deadline_s()

    def _assign(self, group: ConsumerGroup) -> None:
        if entries := group.decide_targets(self._image.partition_counts(), self._clock.now_ms()):
            self._unassigned.add(group.name)  # unless this write succeeds
            self._write(group.name, entries)
            self.rebalances += 1
        self._unassigned.discard(group.name)
        self._watch(group)

    def _write(self, name: str, entries: Sequence[Entry]) -> None:
        self._log.write(self._log.number_of(name), entries)

    def _safe(self, name: str) -> Safe:
        return self._log.safe(self._log.number_of(name))

    def _watch(self, group: ConsumerGroup) -> None:
        group.begin_sessions(self._clock.monotonic_s())
        self._deadlines.set(group.name, group.next_deadline_s())
