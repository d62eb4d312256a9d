"""The consumer protocol (KIP-848): heartbeat and describe. Topics are identified by their ids."""

from __future__ import annotations

from collections.abc import Iterable

from flymq.broker.service.groups import CONSUMER, GroupInfo, Heartbeat, MemberInfo, Place
from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.cluster import GROUP_OPERATIONS, NO_OPERATIONS
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.group_admin import STATES
from flymq.model.errors import FlyMQError, OtherGroupType
from flymq.model.names import TopicPartition, by_topic
from flymq.wire.kafka.messages import consumer_group_describe as description
from flymq.wire.kafka.messages import consumer_group_heartbeat as wire

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def heartbeat(
    connection: KafkaConnection, request: wire.ConsumerGroupHeartbeatRequest, _version: int
) -> wire.ConsumerGroupHeartbeatResponse | AnswerLater:
    groups = connection.service.groups
    if not request.group_id:
        return wire.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        place, safe = groups.beat(connection.caller, request.group_id, _beat(connection, request))
    except OtherGroupType as error:
        return wire.ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=error.message, member_id=request.member_id
        )
    response = wire.ConsumerGroupHeartbeatResponse(
        member_id=place.member_id,
        member_epoch=place.epoch,
        heartbeat_interval_ms=groups.beat_interval_ms(connection.caller, request.group_id),
        assignment=_assignment(connection, place),
    )
    return response if safe is None else AnswerLater(safe, lambda _: response)


def _beat(connection: KafkaConnection, request: wire.ConsumerGroupHeartbeatRequest) -> Heartbeat:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Heartbeat(
        request.member_id,
        request.member_epoch,
        request.instance_id or "",
        connection.caller.client_id,
        connection.caller.address,
        request.rack_id,
        request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else None,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else frozenset(_named(connection, owned)),
    )


def _named(connection: KafkaConnection, owned: Iterable[wire.TopicPartitions]) -> Iterable[TopicPartition]:
    """Yield the owned partitions by topic name, without deleted topics."""
    for each in owned:
        topic = connection.service.topics.find_by_id(connection.caller, each.topic_id)
        if topic is not None:
            yield from (TopicPartition(topic.name, number) for number in each.partitions)


def _assignment(connection: KafkaConnection, place: Place) -> wire.Assignment | None:
    if place.assignment is None:
        return None
    assigned = by_topic(sorted(place.assignment)).items()
    return wire.Assignment([wire.TopicPartitions(_id_of(connection, topic), numbers) for topic, numbers in assigned])


def _id_of(connection: KafkaConnection, topic: str) -> bytes:
    return connection.service.topics.get(connection.caller, topic).topic_id.bytes


def describe(
    connection: KafkaConnection, request: description.ConsumerGroupDescribeRequest, _version: int
) -> description.ConsumerGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS
    groups = []
    for name in request.group_ids:
        try:
            group = connection.service.groups.describe(connection.caller, name, type_=CONSUMER)
            groups.append(_describe(connection, group, operations))
        except FlyMQError as error:
            groups.append(description.DescribedGroup(code_of(error), error.message, name))
    return description.ConsumerGroupDescribeResponse(groups=groups)


def _describe(connection: KafkaConnection, group: GroupInfo, operations: int) -> description.DescribedGroup:
    return description.DescribedGroup(
        group_id=group.name,
        group_state=STATES[group.state],
        group_epoch=group.generation,
        assignment_epoch=group.generation,
        assignor_name=group.assignor,
        members=[_member(connection, member) for member in group.members],
        authorized_operations=operations,
    )


def _member(connection: KafkaConnection, member: MemberInfo) -> description.Member:
    return description.Member(
        member.member_id,
        member.instance or None,
        member.rack or None,
        member.epoch,
        member.client_id,
        member.host,
        list(member.topics),
        member.pattern or None,
        _described(connection, member.assignment),
        _described(connection, member.target),
        _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _described(connection: KafkaConnection, partitions: Iterable[TopicPartition]) -> description.Assignment:
    return description.Assignment(
        [
            description.TopicPartitions(_id_of(connection, topic), topic, numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
    )
