"""The streams protocol (KIP-1071): heartbeat and describe. Internal topics that a topology needs are created here."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from flymq.broker.safety import Safe, wait_safe
from flymq.broker.service.groups import (
    STREAMS,
    GroupInfo,
    InternalTopicValue,
    MemberInfo,
    Status,
    StreamsHeartbeat,
    StreamsPlace,
    SubtopologyValue,
    TaskId,
    TasksValue,
    TopologyValue,
)
from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.cluster import GROUP_OPERATIONS, NO_OPERATIONS
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.group_admin import STATES
from flymq.gateways.kafka.settings import to_flymq, with_kafka_defaults
from flymq.model.errors import FlyMQError, InvalidRequest, InvalidTopology, OtherGroupType, TopicExists
from flymq.model.names import TopicPartition, by_topic
from flymq.wire.kafka.messages import streams_group_describe as description
from flymq.wire.kafka.messages import streams_group_heartbeat as wire

_NO_TASKS = TasksValue()
_LAG_MAX = 10_000
_OFFSETS_INTERVAL_MS = 60_000
"""Kafka's defaults: how far behind a warm-up task may be, and how often its offsets are sent. No warm-up tasks are
assigned, as in Kafka."""

_FAILURES_SHOWN = 3

Response = wire.StreamsGroupHeartbeatResponse


def heartbeat(
    connection: KafkaConnection, request: wire.StreamsGroupHeartbeatRequest, _version: int
) -> Response | AnswerLater | Coroutine[Any, Any, Response]:
    try:
        if request.instance_id is not None:
            raise InvalidRequest("a streams group has no static members: remove `group.instance.id`")
        beat = _beat(connection, request)
        place, safe = connection.service.groups.streams_beat(connection.caller, request.group_id, beat)
    except FlyMQError as error:
        code = ErrorCode.GROUP_ID_NOT_FOUND if isinstance(error, OtherGroupType) else code_of(error)
        return Response(error_code=code, error_message=error.message, member_id=request.member_id, status=[])
    if place.missing:
        return _create_and_respond(connection, request.group_id, beat, place)
    response = _respond(place)
    return response if safe is None else AnswerLater(safe, lambda _: response)


async def _create_and_respond(
    connection: KafkaConnection, group: str, beat: StreamsHeartbeat, place: StreamsPlace
) -> Response:
    """Create internal topics. If all are there, the member gets its tasks now, not with its next heartbeat."""
    failures = []
    for topic in place.missing:
        try:
            await _create(connection, topic)
        except FlyMQError as error:
            failures.append(f"{topic.name}: {error.message}")
    safe: Safe = None
    if not failures:
        again = replace(beat, epoch=place.epoch, topology=None, owned=_NO_TASKS if beat.topology else beat.owned)
        found, safe = connection.service.groups.streams_beat(connection.caller, group, again)
        place = replace(found, tasks=place.tasks if found.tasks is None else found.tasks)
    await wait_safe(safe)
    response = _respond(place)
    for status in response.status or ():
        if failures and status.status_code == Status.MISSING_INTERNAL_TOPICS:
            more = f"; and {len(failures) - _FAILURES_SHOWN} more" if len(failures) > _FAILURES_SHOWN else ""
            status.status_detail += f"; creation failed: {'; '.join(failures[:_FAILURES_SHOWN])}{more}"
    return response


async def _create(connection: KafkaConnection, topic: InternalTopicValue) -> None:
    topics = connection.service.topics
    try:
        await topics.create(
            connection.caller,
            topic.name,
            partitions=topic.partitions,
            replication_factor=max(0, topic.replication_factor),  # -1 also means the default
            settings=with_kafka_defaults(to_flymq(dict(topic.settings))),
        )
    except TopicExists:  # another member was faster
        return


# --- read requests --------------------------------------------------------------------------------------------------


def _beat(connection: KafkaConnection, request: wire.StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(kind is None for kind in kinds) and any(kind is not None for kind in kinds):
        raise InvalidRequest("if one kind of tasks is set, all must be")
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        request.member_id,
        request.member_epoch,
        connection.caller.client_id,
        connection.caller.address,
        request.rack_id,
        request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else None,
        None if request.topology is None else _topology(request.topology),
        request.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        None if tags is None else tuple((tag.key, tag.value) for tag in tags),
        None if request.active_tasks is None else TasksValue(*map(_tasks, kinds)),
        request.endpoint_information_epoch,
        request.shutdown_application,
    )


def _tasks(found: Sequence[wire.TaskIds] | None) -> tuple[TaskId, ...]:
    return tuple(TaskId(each.subtopology_id, number) for each in found or () for number in each.partitions)


def _topology(topology: wire.Topology) -> TopologyValue:
    subtopologies = sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
    return TopologyValue(topology.epoch, tuple(map(_subtopology, subtopologies)))


def _subtopology(found: wire.Subtopology) -> SubtopologyValue:
    repartitions = tuple(map(_internal, found.repartition_source_topics))
    return SubtopologyValue(
        found.subtopology_id,
        tuple(found.source_topics),
        tuple(map(_internal, found.state_changelog_topics)),
        tuple(found.repartition_sink_topics),
        repartitions,
        tuple(
            (
                *_pick(found.source_topics, group.source_topics),
                *_pick([topic.name for topic in repartitions], group.repartition_source_topics),
            )
            for group in found.copartition_groups
        ),
    )


def _internal(topic: wire.TopicInfo) -> InternalTopicValue:
    settings = tuple(sorted((config.key, config.value) for config in topic.topic_configs))
    return InternalTopicValue(topic.name, topic.partitions, topic.replication_factor, settings)


def _pick(names: Sequence[str], numbers: Collection[int]) -> Iterable[str]:
    if any(not 0 <= number < len(names) for number in numbers):
        raise InvalidTopology("a copartition group names a topic that the subtopology does not read")
    return (names[number] for number in numbers)


# --- write responses ------------------------------------------------------------------------------------------------


def _respond(place: StreamsPlace) -> Response:
    tasks = place.tasks
    return Response(
        member_id=place.member_id,
        member_epoch=place.epoch,
        heartbeat_interval_ms=place.heartbeat_ms,
        acceptable_recovery_lag=_LAG_MAX,
        task_offset_interval_ms=_OFFSETS_INTERVAL_MS,
        status=[wire.Status(status, detail) for status, detail in place.statuses],
        active_tasks=None if tasks is None else _by_subtopology(tasks.active, wire.TaskIds),
        standby_tasks=None if tasks is None else _by_subtopology(tasks.standby, wire.TaskIds),
        warmup_tasks=None if tasks is None else _by_subtopology(tasks.warmup, wire.TaskIds),
        endpoint_information_epoch=place.endpoint_epoch,
        partitions_by_user_endpoint=None
        if place.endpoints is None
        else [
            wire.EndpointToPartitions(wire.Endpoint(*each.address), _partitions(each.active), _partitions(each.standby))
            for each in place.endpoints
        ],
    )


def _by_subtopology(tasks: Collection[TaskId], make: Any) -> list[Any]:
    found: dict[str, list[int]] = {}
    for task in sorted(tasks):
        found.setdefault(task.subtopology, []).append(task.partition)
    return [make(name, numbers) for name, numbers in found.items()]


def _partitions(partitions: Iterable[TopicPartition]) -> list[wire.TopicPartition]:
    return [wire.TopicPartition(topic, numbers) for topic, numbers in by_topic(sorted(partitions)).items()]


# --- describe -------------------------------------------------------------------------------------------------------


def describe(
    connection: KafkaConnection, request: description.StreamsGroupDescribeRequest, _version: int
) -> description.StreamsGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS
    groups = []
    for name in request.group_ids:
        try:
            group = connection.service.groups.describe(connection.caller, name, type_=STREAMS)
            groups.append(_describe(group, operations))
        except FlyMQError as error:
            groups.append(description.DescribedGroup(code_of(error), error.message, name))
    return description.StreamsGroupDescribeResponse(groups=groups)


def _describe(group: GroupInfo, operations: int) -> description.DescribedGroup:
    topology = group.topology or TopologyValue()
    return description.DescribedGroup(
        group_id=group.name,
        group_state=STATES[group.state],
        group_epoch=group.generation,
        assignment_epoch=group.generation,
        topology=description.Topology(topology.epoch, [_describe_part(each) for each in topology.subtopologies]),
        members=[_member(member) for member in group.members],
        authorized_operations=operations,
    )


def _describe_part(subtopology: SubtopologyValue) -> description.Subtopology:
    return description.Subtopology(
        subtopology.name,
        sorted(subtopology.sources),
        sorted(subtopology.repartition_sinks),
        [_describe_topic(topic) for topic in subtopology.changelogs],
        [_describe_topic(topic) for topic in subtopology.repartition_sources],
    )


def _describe_topic(topic: InternalTopicValue) -> description.TopicInfo:
    configs = [description.KeyValue(name, value) for name, value in topic.settings]
    return description.TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _member(member: MemberInfo) -> description.Member:
    value = member.streams
    assert value is not None, "a member of a streams group"
    return description.Member(
        member.member_id,
        member.epoch,
        rack_id=member.rack or None,
        client_id=member.client_id,
        client_host=member.host,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if value.endpoint is None else description.Endpoint(*value.endpoint),
        client_tags=[description.KeyValue(name, text) for name, text in value.tags],
        assignment=_described(value.assigned),
        target_assignment=_described(value.target),
    )


def _described(tasks: TasksValue) -> description.Assignment:
    return description.Assignment(
        *(_by_subtopology(kind, description.TaskIds) for kind in (tasks.active, tasks.standby, tasks.warmup))
    )
