"""Groups whose members the broker tells what to read, run on their log: heartbeats in, shares out.

All that is decided at one heartbeat is written in small steps, each of them a state in which the group can go on after
a crash; the member hears of it when the last one is on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flymq.broker.coordinators.deadlines import Deadlines
from flymq.broker.coordinators.group_log import Durable, GroupLog
from flymq.broker.replicas.replicas import Topics
from flymq.coordination.consumer_group import IS_AWAY, JOINS, LEAVES, Beat, ConsumerGroup
from flymq.coordination.group import GroupLimits
from flymq.host.clock import Clock
from flymq.host.entropy import Entropy, new_id
from flymq.model.errors import InvalidRequest
from flymq.model.names import TopicPartition


@dataclass(slots=True)
class Place:
    """What a member is told: its epoch, and what it may read from now on; None when that is as before."""

    member_id: str
    epoch: int
    share: tuple[TopicPartition, ...] | None = None


class ConsumerGroups:
    """The groups of this type; `Groups` has their offsets."""

    def __init__(self, log: GroupLog, topics: Topics, clock: Clock, entropy: Entropy, limits: GroupLimits) -> None:
        self.limits = limits
        self._log = log
        self._topics = topics
        self._clock = clock
        self._entropy = entropy
        self._deadlines = Deadlines(clock, self._look_at)
        self.rebalances = 0
        """How often it was decided anew who is to read what, since the start."""

    def open(self) -> None:
        """Go on where the log ends."""
        for group in self._log:
            if isinstance(group, ConsumerGroup) and group.members:
                self._share_out(group)

    def close(self) -> None:
        self._deadlines.close()

    def heartbeat(self, name: str, beat: Beat) -> tuple[Place, Durable]:
        """A member joins, lives, changes or leaves."""
        if not beat.member_id and beat.epoch == JOINS:  # older members are given their id
            beat = replace(beat, member_id=str(new_id(self._entropy)))
        if not name or not beat.member_id:
            raise InvalidRequest("a group and its members have names")
        table = self._log.table(name)
        found = table.find(name)
        (found if isinstance(found, ConsumerGroup) else ConsumerGroup(name, self.limits)).check(beat)
        if entries := table.decide_type(name, ConsumerGroup, self._clock.now_ms()):
            self._log.write(name, entries)
        group = table.get(name)
        assert isinstance(group, ConsumerGroup)
        if beat.epoch in (LEAVES, IS_AWAY):
            return self._leave(group, beat), self._log.durable(name)
        if entries := group.decide_member(beat):
            self._log.write(name, entries)
            self._share_out(group)
        entries = group.decide_step(beat.member_id, beat.owned)
        if entries:
            self._log.write(name, entries)
        member = group.members[beat.member_id]
        group.touch(member, self._clock.monotonic_s())
        self._watch(group)
        is_told = bool(entries) or beat.owned is not None
        return Place(beat.member_id, member.value.epoch, member.value.assigned if is_told else None), self._log.durable(
            name
        )

    def topic_changed(self, group: ConsumerGroup, topic: str) -> None:
        """A topic has come, gone or grown."""
        if group.is_concerned_by(topic):
            self._share_out(group)

    def _leave(self, group: ConsumerGroup, beat: Beat) -> Place:
        if beat.epoch == IS_AWAY:
            self._log.write(group.name, group.decide_away(beat.member_id))
        else:
            self._log.write(group.name, group.decide_leave(beat.member_id))
            self._share_out(group)
        return Place(beat.member_id, beat.epoch)

    def _look_at(self, name: str) -> float | None:
        """A deadline of the group has come, or had come before somebody spoke."""
        group = self._log.table(name).find(name)
        if not isinstance(group, ConsumerGroup):
            return None
        if overdue := group.overdue(self._clock.monotonic_s()):
            self._log.write(name, [entry for member_id in overdue for entry in group.decide_leave(member_id)])
            self._share_out(group)
        return group.next_deadline_s()

    def _share_out(self, group: ConsumerGroup) -> None:
        counts = {topic.name: len(topic.partitions) for topic in self._topics}
        if entries := group.decide_targets(counts, self._clock.now_ms()):
            self._log.write(group.name, entries)
            self.rebalances += 1
        self._watch(group)

    def _watch(self, group: ConsumerGroup) -> None:
        group.begin_sessions(self._clock.monotonic_s())
        self._deadlines.set(group.name, group.next_deadline_s())
