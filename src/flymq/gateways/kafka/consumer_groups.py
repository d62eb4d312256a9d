"""Groups whose members the broker tells what to read: heartbeat and describe. Topics go by their ids here."""

from __future__ import annotations

from collections.abc import Iterable

from flymq.broker.coordinators.consumer_groups import Place
from flymq.broker.replicas.replicas import Topics
from flymq.coordination.consumer_group import Beat, ConsumerGroup, ConsumerMember
from flymq.coordination.subscriptions import by_topic
from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.cluster import GROUP_OPERATIONS, NO_OPERATIONS
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.group_admin import STATES
from flymq.model.errors import FlyMQError, GroupNotFound, OtherGroupType, TopicIdNotFound
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages import consumer_group_describe as description
from flymq.wire.kafka.messages import consumer_group_heartbeat as wire

_CONSUMER_MEMBER = 1


def heartbeat(
    connection: KafkaConnection, request: wire.ConsumerGroupHeartbeatRequest, _version: int
) -> wire.ConsumerGroupHeartbeatResponse | AnswerLater:
    broker = connection.broker
    if not request.group_id:
        return wire.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        place, durable = broker.groups.consumers.heartbeat(request.group_id, _beat(connection, request))
    except OtherGroupType as error:
        return wire.ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=error.message, member_id=request.member_id
        )
    response = wire.ConsumerGroupHeartbeatResponse(
        member_id=place.member_id,
        member_epoch=place.epoch,
        heartbeat_interval_ms=broker.groups.consumers.limits.consumer_heartbeat_ms,
        assignment=_assignment(broker.topics, place),
    )
    return response if durable is None else AnswerLater(durable, lambda _: response)


def _beat(connection: KafkaConnection, request: wire.ConsumerGroupHeartbeatRequest) -> Beat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Beat(
        request.member_id,
        request.member_epoch,
        request.instance_id or "",
        connection.client_id,
        connection.peer_host,
        request.rack_id,
        request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else None,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else frozenset(_named(connection.broker.topics, owned)),
    )


def _named(topics: Topics, owned: Iterable[wire.TopicPartitions]) -> Iterable[TopicPartition]:
    """Yield what a member has under its names; what was deleted meanwhile nobody has."""
    for each in owned:
        try:
            topic = topics.get_by_id(each.topic_id).name
        except TopicIdNotFound:
            continue
        yield from (TopicPartition(topic, number) for number in each.partitions)


def _assignment(topics: Topics, place: Place) -> wire.Assignment | None:
    if place.share is None:
        return None
    shares = by_topic(sorted(place.share)).items()
    return wire.Assignment(
        [wire.TopicPartitions(topics.get(topic).topic_id.bytes, numbers) for topic, numbers in shares]
    )


def describe(
    connection: KafkaConnection, request: description.ConsumerGroupDescribeRequest, _version: int
) -> description.ConsumerGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS
    groups = []
    for name in request.group_ids:
        try:
            group = connection.broker.groups.get(name)
            if not isinstance(group, ConsumerGroup):
                raise GroupNotFound(f"{name!r} is not a consumer group")
            groups.append(_describe(connection.broker.topics, group, operations))
        except FlyMQError as error:
            groups.append(description.DescribedGroup(code_of(error), error.message, name))
    return description.ConsumerGroupDescribeResponse(groups=groups)


def _describe(topics: Topics, group: ConsumerGroup, operations: int) -> description.DescribedGroup:
    return description.DescribedGroup(
        group_id=group.name,
        group_state=STATES[group.state],
        group_epoch=group.generation,
        assignment_epoch=group.generation,
        assignor_name=group.assignor,
        members=[_member(topics, name, member) for name, member in group.members.items()],
        authorized_operations=operations,
    )


def _member(topics: Topics, member_id: str, member: ConsumerMember) -> description.Member:
    value = member.value
    return description.Member(
        member_id,
        value.instance or None,
        value.rack or None,
        value.epoch,
        value.client_id,
        value.host,
        list(value.topics),
        value.pattern or None,
        _described(topics, value.assigned),
        _described(topics, value.target),
        _CONSUMER_MEMBER,
    )


def _described(topics: Topics, partitions: Iterable[TopicPartition]) -> description.Assignment:
    return description.Assignment(
        [
            description.TopicPartitions(topics.get(topic).topic_id.bytes, topic, numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )
