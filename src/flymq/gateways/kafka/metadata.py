"""Metadata: topics and the leaders of their partitions. Topics are created on first use if allowed."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from flymq.broker.service.topics import NO_LEADER, Topic
from flymq.gateways.kafka.cluster import CLUSTER_OPERATIONS, NO_OPERATIONS, TOPIC_OPERATIONS
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.internal_topics import kafka_name, own_name
from flymq.gateways.kafka.settings import with_kafka_defaults
from flymq.host.time_slices import TimeSlice
from flymq.model.errors import FlyMQError
from flymq.wire.kafka.messages import describe_topic_partitions as pages
from flymq.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from flymq.wire.kafka.values import NO_ID


def metadata(
    connection: KafkaConnection, request: MetadataRequest, version: int
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    wanted, topics = request.topics, connection.service.topics
    if wanted is None or (version == 0 and not wanted):
        return _respond_with_all(connection, request)
    if request.allow_auto_topic_creation and any(
        each.name and not topics.exists(connection.caller, own_name(each.name)) for each in wanted
    ):
        return _create_and_respond(connection, request, wanted)
    return _respond(connection, request, [_find(connection, request, each) for each in wanted])


async def _respond_with_all(connection: KafkaConnection, request: MetadataRequest) -> MetadataResponse:
    """Describe every topic; other requests are served meanwhile, since there may be thousands."""
    topics, slice_ = [], TimeSlice()
    for topic in connection.service.topics.all(connection.caller):
        topics.append(_topic(connection, topic, request))
        await slice_.yield_if_over()
    return _respond(connection, request, topics)


async def _create_and_respond(
    connection: KafkaConnection, request: MetadataRequest, wanted: Sequence[MetadataRequestTopic]
) -> MetadataResponse:
    topics = []
    for each in wanted:
        if not each.name:
            topics.append(_find(connection, request, each))
            continue
        try:
            found = await connection.service.topics.get_or_create(
                connection.caller, own_name(each.name), with_kafka_defaults({})
            )
            topics.append(_topic(connection, found, request, each.name))
        except FlyMQError as error:
            topics.append(MetadataResponseTopic(code_of(error), each.name))
    return _respond(connection, request, topics)


def _find(connection: KafkaConnection, request: MetadataRequest, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    topics, caller = connection.service.topics, connection.caller
    name = None if wanted.topic_id != NO_ID else wanted.name  # librdkafka sends an empty name with an id
    try:
        if name is None:
            return _topic(connection, topics.get_by_id(caller, wanted.topic_id), request)
        return _topic(connection, topics.get(caller, own_name(name)), request, name)
    except FlyMQError as error:
        return MetadataResponseTopic(code_of(error), name, wanted.topic_id)


def _respond(
    connection: KafkaConnection, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    cluster = connection.service.cluster
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(broker.broker_id, broker.host, broker.port, broker.rack or None)
            for broker in cluster.usable_brokers(connection.local_address)
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )


def _topic(
    connection: KafkaConnection, topic: Topic, request: MetadataRequest, asked_name: str = ""
) -> MetadataResponseTopic:
    offline = connection.service.topics.offline_replicas(connection.caller, topic)
    is_live = connection.service.cluster.is_live
    partitions = []
    for number, state in enumerate(topic.partitions):
        code, leader = ErrorCode.NONE, state.leader
        if not is_live(leader):  # as Kafka does: the client asks again soon
            code, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
        partitions.append(
            MetadataResponsePartition(
                code, number, leader, state.leader_epoch, state.replicas, state.isr, offline.get(number, [])
            )
        )
    return MetadataResponseTopic(
        ErrorCode.NONE,
        asked_name or kafka_name(topic.name),
        topic.topic_id.bytes,
        topic.is_internal,
        partitions,
        TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_OPERATIONS,
    )


def describe_topic_partitions(
    connection: KafkaConnection, request: pages.DescribeTopicPartitionsRequest, _version: int
) -> pages.DescribeTopicPartitionsResponse:
    """Like Metadata, in pages: topics sorted by name, from a cursor on, up to a number of partitions."""
    topics, caller = connection.service.topics, connection.caller
    names = sorted({topic.name for topic in request.topics} or {kafka_name(topic.name) for topic in topics.all(caller)})
    first = request.cursor or pages.Cursor()
    left = max(1, min(request.response_partition_limit, 2000))
    response = pages.DescribeTopicPartitionsResponse()
    for name in names:
        if name < first.topic_name:
            continue
        start = first.partition_index if name == first.topic_name else 0
        if left == 0:
            response.next_cursor = pages.Cursor(name, 0)
            break
        if not topics.exists(caller, own_name(name)):
            response.topics.append(
                pages.DescribeTopicPartitionsResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, NO_ID)
            )
            left -= 1  # a page has an end, whatever it shows
            continue
        topic = topics.get(caller, own_name(name))
        numbers = range(len(topic.partitions))[start : start + left]
        response.topics.append(_page(connection, topic, name, numbers))
        left -= len(numbers)
        if start + len(numbers) < len(topic.partitions):
            response.next_cursor = pages.Cursor(name, start + len(numbers))
            break
    return response


def _page(
    connection: KafkaConnection, topic: Topic, name: str, numbers: range
) -> pages.DescribeTopicPartitionsResponseTopic:
    offline = connection.service.topics.offline_replicas(connection.caller, topic)
    is_live = connection.service.cluster.is_live
    partitions = []
    for number in numbers:
        state = topic.partitions[number]
        is_led = is_live(state.leader)
        partitions.append(
            pages.DescribeTopicPartitionsResponsePartition(
                ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE,
                number,
                state.leader if is_led else NO_LEADER,
                state.leader_epoch,
                state.replicas,
                state.isr,
                eligible_leader_replicas=state.elr,  # not null: Java's clients do not take that
                last_known_elr=[],
                offline_replicas=offline.get(number, []),
            )
        )
    return pages.DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE, name, topic.topic_id.bytes, topic.is_internal, partitions, TOPIC_OPERATIONS
    )
