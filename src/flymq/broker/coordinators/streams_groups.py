"""Streams groups (KIP-1071): heartbeats in, tasks out. As consumer_groups.py, for the tasks of Kafka Streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flymq.broker.coordinators.heartbeat_groups import HeartbeatGroups
from flymq.broker.safety import Safe
from flymq.coordination.consumer_group import LEAVES
from flymq.coordination.entries import InternalTopicValue, TasksValue
from flymq.coordination.groups import GroupTable
from flymq.coordination.streams_group import StreamsGroup, StreamsHeartbeat
from flymq.coordination.streams_topology import Status
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


class StreamsGroups(HeartbeatGroups[StreamsGroup]):
    """Membership in streams groups."""

    group_type = StreamsGroup
    settings_prefix = "streams"

    def loaded(self, table: GroupTable) -> None:
        """Continue after the log was replayed."""
        for group in table:
            if isinstance(group, StreamsGroup) and group.members:
                self._assign(group)

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
        group.limits = self.limits_of(name)
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

    def _remove(self, group: StreamsGroup, member_ids: Sequence[str]) -> None:
        self._write(group.name, [entry for member_id in member_ids for entry in group.decide_leave(member_id)])
        if not group.members:
            group.shut_down_by = ""
        self._assign(group)
