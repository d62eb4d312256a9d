"""Groups of the consumer protocol (KIP-848): heartbeats in, assignments out.

The decisions of one heartbeat are written in small steps, each of them a state from which the group can continue after
a crash; the member gets its response when the last one is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flymq.broker.coordinators.heartbeat_groups import HeartbeatGroups
from flymq.broker.coordinators.state_log import StateLog
from flymq.broker.safety import Safe
from flymq.cluster.image import Image
from flymq.coordination.consumer_group import IS_AWAY, JOINS, LEAVES, ConsumerGroup, Heartbeat
from flymq.coordination.group import GroupLimits, Join
from flymq.coordination.group_migration import decide_downgrade
from flymq.coordination.groups import GroupTable
from flymq.coordination.subscriptions import encode_assignment, parse_subscription
from flymq.host.clock import Clock
from flymq.host.entropy import Entropy, new_id
from flymq.model.errors import InvalidRequest, MemberIdRequired, RebalanceInProgress
from flymq.model.names import TopicPartition


@dataclass(slots=True)
class Place:
    """The response to a heartbeat: member epoch and assignment; None: the assignment has not changed."""

    member_id: str
    epoch: int
    assignment: tuple[TopicPartition, ...] | None = None


class ConsumerGroups(HeartbeatGroups[ConsumerGroup]):
    """Membership in consumer groups."""

    group_type = ConsumerGroup
    settings_prefix = "consumer"

    def __init__(
        self,
        log: StateLog[GroupTable],
        image: Image,
        clock: Clock,
        entropy: Entropy,
        limits: GroupLimits,
        migrated: Callable[[str], None],
        assigned: Callable[[ConsumerGroup], None],
    ) -> None:
        """`migrated` is called when a group with members has changed its type, `assigned` after every assignment."""
        super().__init__(log, image, clock, limits)
        self._migrated = migrated
        self._assigned = assigned
        self._entropy = entropy

    def loaded(self, table: GroupTable) -> None:
        """Continue after the log was replayed."""
        for group in table:
            if isinstance(group, ConsumerGroup) and group.members and not self._downgrade(group):
                self._assign(group)

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
            self._migrated(name)
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

    # --- classic members of a consumer group

    def join(self, group: ConsumerGroup, join: Join, new_member_id: str, *, needs_id: bool) -> tuple[Place, Safe]:
        """Add a classic member, or let it rejoin: so it takes its next step."""
        group.check_classic_join(join)
        if needs_id and not join.member_id and not join.instance:
            error = MemberIdRequired(f"join again as {new_member_id}")
            error.member_id = new_member_id
            raise error
        member_id = join.member_id or new_member_id
        self._write(group.name, group.decide_classic_join(join, member_id))
        member = group.members[member_id]
        member.revoke_until_s = None
        group.touch(member, self._clock.monotonic_s())
        if self._downgrade(group):
            raise RebalanceInProgress(f"the group {group.name!r} changes its protocol")
        self._assign(group)
        owned = parse_subscription(join.protocols[0][1]).owned
        if entries := group.decide_step(member_id, owned):
            self._write(group.name, entries)
        self._watch(group)
        return Place(member_id, member.value.epoch, member.value.assigned), self._safe(group.name)

    def sync(self, group: ConsumerGroup, member_id: str, generation: int) -> tuple[Safe, bytes]:
        """Return the assignment of a classic member."""
        member = group.get_classic(member_id, generation)
        group.touch(member, self._clock.monotonic_s())
        if member.value.epoch != group.generation and not member.value.revoking:
            raise RebalanceInProgress(f"the group {group.name!r} is rebalancing")
        return self._safe(group.name), encode_assignment(sorted(member.value.assigned))

    def classic_heartbeat(self, group: ConsumerGroup, member_id: str, generation: int, *, instance: str) -> None:
        """Extend the session of a classic member; raise an error if it must rejoin."""
        now_s = self._clock.monotonic_s()
        member = group.get_classic(member_id, generation, instance=instance)
        group.touch(member, now_s)
        if group.must_rejoin(member):
            if member.revoke_until_s is None:
                member.revoke_until_s = now_s + member.value.rebalance_timeout_ms / 1000
                self._watch(group)
            raise RebalanceInProgress(f"the group {group.name!r} is rebalancing")

    def leave(self, group: ConsumerGroup, member_id: str, *, instance: str) -> None:
        """Remove a member of either protocol, by its id or its instance."""
        self._remove(group, [group.find_leaving(member_id, instance=instance)])

    def _remove(self, group: ConsumerGroup, member_ids: Sequence[str]) -> None:
        self._write(group.name, [entry for member_id in member_ids for entry in group.decide_leave(member_id)])
        if not self._downgrade(group):
            self._assign(group)

    def _downgrade(self, group: ConsumerGroup) -> bool:
        """Make the group classic if all members are."""
        entries = decide_downgrade(group, self._clock.now_ms())
        if entries:
            self._write(group.name, entries)
            self._migrated(group.name)
        return bool(entries)

    # --- reactions

    def topic_changed(self, group: ConsumerGroup, topic: str) -> None:
        """A topic was created, deleted or extended."""
        if group.is_concerned_by(topic):
            self._assign(group)

    def _leave(self, group: ConsumerGroup, beat: Heartbeat) -> Place:
        if beat.epoch == IS_AWAY:
            self._write(group.name, group.decide_away(beat.member_id))
        else:
            self._remove(group, [beat.member_id])
        return Place(beat.member_id, beat.epoch)

    def _watch(self, group: ConsumerGroup) -> None:
        super()._watch(group)
        self._assigned(group)
