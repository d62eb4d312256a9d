"""Streams groups (KIP-1071): heartbeats in, tasks out. As consumer_groups.py, for the tasks of Kafka Streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flymq.broker.coordinators.deadlines import Deadlines
from flymq.broker.coordinators.group_limits import limits_of
from flymq.broker.coordinators.state_log import StateLog
from flymq.broker.safety import Safe
from flymq.cluster.image import Image
from flymq.coordination.consumer_group import LEAVES
from flymq.coordination.entries import Entry, InternalTopicValue, TasksValue
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.coordination.streams_group import StreamsGroup, StreamsHeartbeat
from flymq.coordination.streams_topology import Status
from flymq.host.clock import Clock
from flymq.model.errors import InvalidRequest
from flymq.model.names import TopicPartition


@dataclass(slots=True)
class Endpoint:
    """Where the state of these partitions can be queried."""

    address: tuple[str, int]
    active: list[TopicPartition]
    standby: list[TopicPartition]


@dataclass(slots=True)
class StreamsPlace:
    """The response to a heartbeat: member epoch and tasks; None: they have not changed."""

    member_id: str
    epoch: int
    tasks: TasksValue | None = None
    statuses: Sequence[tuple[Status, str]] = ()
    missing: Sequence[InternalTopicValue] = ()
    """Internal topics that have to be created."""
    endpoint_epoch: int = 0
    endpoints: Sequence[Endpoint] | None = None
    heartbeat_ms: int = 0
    """The heartbeat interval of the group."""


class StreamsGroups:
    """Membership in groups of this type; `Groups` has their offsets."""

    def __init__(self, log: StateLog[GroupTable], image: Image, clock: Clock, limits: GroupLimits) -> None:
        self.limits = limits
        self._log = log
        self._image = image
        self._clock = clock
        self._deadlines = Deadlines(clock, self._look_at)
        self._unassigned: set[str] = set()  # groups whose new targets could not be written
        self.rebalances = 0
        """Number of changes of target assignments since the start."""

    def loaded(self, table: GroupTable) -> None:
        """Continue after the log was replayed."""
        for group in table:
            if isinstance(group, StreamsGroup) and group.members:
                self._assign(group)

    def close(self) -> None:
        self._deadlines.close()

    def heartbeat(self, name: str, beat: StreamsHeartbeat) -> tuple[StreamsPlace, Safe]:
        """Process a heartbeat, by which a member joins, stays, changes or leaves."""
        if not name or not beat.member_id:
            raise InvalidRequest("the group id and the member id must not be empty")
        table = self._log.table(name)
        found = table.find(name)
        (found if isinstance(found, StreamsGroup) else StreamsGroup(name, self.limits)).check(beat)
        if entries := table.decide_type(name, StreamsGroup, self._clock.now_ms()):
            self._write(name, entries)
        group = table.get(name)
        assert isinstance(group, StreamsGroup)
        group.limits = limits_of(self.limits, self._image, name, type_="streams")
        if beat.shuts_down:
            group.shut_down_by = group.shut_down_by or beat.member_id
        if beat.epoch == LEAVES:
            self._remove(group, [beat.member_id])
            left = StreamsPlace(beat.member_id, beat.epoch, heartbeat_ms=group.limits.consumer_heartbeat_ms)
            return left, self._safe(name)
        return self._stay(group, beat), self._safe(name)

    def _stay(self, group: StreamsGroup, beat: StreamsHeartbeat) -> StreamsPlace:
        before = group.members.get(beat.member_id)
        assigned = None if before is None else before.value.assigned
        if entries := group.decide_member(beat):
            self._write(group.name, entries)
        if entries or group.name in self._unassigned:
            self._assign(group)
        if entries := group.decide_step(beat.member_id, beat.owned):
            self._write(group.name, entries)
        member = group.members[beat.member_id]
        group.touch(member, self._clock.monotonic_s())
        self._watch(group)
        is_told = beat.topology is not None or member.value.assigned != assigned or beat.epoch != member.value.epoch
        if is_told and member.value.endpoint is not None:
            group.endpoint_epoch += 1
        return StreamsPlace(
            beat.member_id,
            member.value.epoch,
            member.value.assigned if is_told else None,
            list(group.statuses(beat.member_id)),
            group.configured.missing,
            group.endpoint_epoch,
            None if beat.endpoint_epoch == group.endpoint_epoch else self._endpoints(group),
            group.limits.consumer_heartbeat_ms,
        )

    def topic_changed(self, group: StreamsGroup, topic: str) -> None:
        """A topic was created, deleted or extended."""
        if group.members and group.is_concerned_by(topic):
            self._assign(group)

    def _endpoints(self, group: StreamsGroup) -> list[Endpoint]:
        counts = self._image.partition_counts()
        return [
            Endpoint(
                member.value.endpoint,
                group.partitions_of(member.value.assigned.active, counts),
                group.partitions_of(member.value.assigned.standby, counts),
            )
            for member in group.members.values()
            if member.value.endpoint is not None
        ]

    def _look_at(self, name: str) -> float | None:
        """Remove the members that timed out; return the next deadline."""
        table = self._log.find_table(self._log.number_of(name))
        group = None if table is None else table.find(name)
        if not isinstance(group, StreamsGroup):
            return None
        if overdue := group.overdue(self._clock.monotonic_s()):
            self._remove(group, overdue)
        elif name in self._unassigned:
            self._assign(group)
        return group.next_deadline_s()

    def _remove(self, group: StreamsGroup, member_ids: Sequence[str]) -> None:
        self._write(group.name, [entry for member_id in member_ids for entry in group.decide_leave(member_id)])
        if not group.members:
            group.shut_down_by = ""
        self._assign(group)

    def _assign(self, group: StreamsGroup) -> None:
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

    def _watch(self, group: StreamsGroup) -> None:
        group.begin_sessions(self._clock.monotonic_s())
        self._deadlines.set(group.name, group.next_deadline_s())
