"""Metadata: which topics there are, and who leads their partitions. Topics are created on first use where allowed."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from flymq.broker.replicas.replicas import Topic
from flymq.gateways.kafka.cluster import CLUSTER_OPERATIONS, NO_OPERATIONS, TOPIC_OPERATIONS
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
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
    wanted = request.topics
    if wanted is None or (version == 0 and not wanted):
        return _respond(connection, request, [_topic(topic, request) for topic in connection.broker.topics])
    if request.allow_auto_topic_creation and any(
        each.name and each.name not in connection.broker.topics for each in wanted
    ):
        return _create_and_respond(connection, request, wanted)
    return _respond(connection, request, [_find(connection, request, each) for each in wanted])


async def _create_and_respond(
    connection: KafkaConnection, request: MetadataRequest, wanted: Sequence[MetadataRequestTopic]
) -> MetadataResponse:
    topics = []
    for each in wanted:
        if not each.name:
            topics.append(_find(connection, request, each))
            continue
        try:
            topics.append(_topic(await connection.broker.admin.get_or_create(each.name), request))
        except FlyMQError as error:
            topics.append(MetadataResponseTopic(code_of(error), each.name))
    return _respond(connection, request, topics)


def _find(connection: KafkaConnection, request: MetadataRequest, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    topics = connection.broker.topics
    try:
        return _topic(topics.get_by_id(wanted.topic_id) if wanted.name is None else topics.get(wanted.name), request)
    except FlyMQError as error:
        return MetadataResponseTopic(code_of(error), wanted.name, wanted.topic_id)


def _respond(
    connection: KafkaConnection, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    broker = connection.broker
    return MetadataResponse(
        brokers=[MetadataResponseBroker(broker.broker_id, *connection.advertised)],
        cluster_id=broker.cluster_id,
        controller_id=broker.broker_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )


def _topic(topic: Topic, request: MetadataRequest) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id.bytes,
        topic.is_internal,
        [
            MetadataResponsePartition(
                ErrorCode.NONE, number, state.leader, state.leader_epoch, state.replicas, state.isr
            )
            for number, state in enumerate(topic.states)
        ],
        TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_OPERATIONS,
    )


def describe_topic_partitions(
    connection: KafkaConnection, request: pages.DescribeTopicPartitionsRequest, _version: int
) -> pages.DescribeTopicPartitionsResponse:
    """The same, in pages: topics in the order of their names, from a cursor on, up to a number of partitions."""
    broker = connection.broker
    names = sorted({topic.name for topic in request.topics} or {topic.name for topic in broker.topics})
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
        if name not in broker.topics:
            response.topics.append(
                pages.DescribeTopicPartitionsResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, NO_ID)
            )
            continue
        topic = broker.topics.get(name)
        numbers = range(len(topic.states))[start : start + left]
        response.topics.append(_page(topic, numbers))
        left -= len(numbers)
        if start + len(numbers) < len(topic.states):
            response.next_cursor = pages.Cursor(name, start + len(numbers))
            break
    return response


def _page(topic: Topic, numbers: range) -> pages.DescribeTopicPartitionsResponseTopic:
    partitions = []
    for number in numbers:
        state = topic.states[number]
        partitions.append(
            pages.DescribeTopicPartitionsResponsePartition(
                ErrorCode.NONE, number, state.leader, state.leader_epoch, state.replicas, state.isr
            )
        )
    return pages.DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE, topic.name, topic.topic_id.bytes, topic.is_internal, partitions, TOPIC_OPERATIONS
    )
