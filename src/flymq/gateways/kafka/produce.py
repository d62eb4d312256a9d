"""Produce: batches for several partitions, each of which succeeds or fails on its own."""

from __future__ import annotations

import asyncio

from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.waiting import when_all_done
from flymq.model.delivery import Acks
from flymq.model.errors import EmptyBatch, FlyMQError, InvalidTopicName
from flymq.model.names import TopicPartition, is_internal
from flymq.wire.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_ACKS = {acks.value: acks for acks in Acks}
Waiting = list[tuple[PartitionProduceResponse, asyncio.Future[None]]]
"""Partitions, and what must be on the disk before their writers hear of it."""


def produce(
    connection: KafkaConnection, request: ProduceRequest, _version: int
) -> ProduceResponse | AnswerLater | None:
    topics: list[TopicProduceResponse] = []
    waiting: Waiting = []
    size, has_failed = 0, False
    for topic in request.topic_data:
        answers = []
        for part in topic.partition_data:
            assert part.records is None or isinstance(part.records, memoryview)
            size += len(part.records or b"")
            answer = _append(connection, request, topic.name, part.index, part.records, waiting)
            has_failed |= answer.error_code != ErrorCode.NONE
            answers.append(answer)
        topics.append(TopicProduceResponse(topic.name, answers))
    throttle_ms = connection.charge(connection.shared.produce_quota, size)
    if request.acks == Acks.NONE:
        if has_failed:
            connection.close_when_sent()  # the one way to tell a client that waits for no response
        return None
    response = ProduceResponse(topics, throttle_ms)
    if not waiting:
        return response
    return AnswerLater(when_all_done([durable for _, durable in waiting]), lambda _: _finish(response, waiting))


def _append(
    connection: KafkaConnection,
    request: ProduceRequest,
    topic: str,
    number: int,
    records: memoryview | None,
    waiting: Waiting,
) -> PartitionProduceResponse:
    """Append to one partition, within a transaction if the request names one."""
    acks = _ACKS.get(request.acks)
    if acks is None:
        return PartitionProduceResponse(number, ErrorCode.INVALID_REQUIRED_ACKS, -1)
    try:
        if not records:
            raise EmptyBatch(f"no records for {topic}-{number}")
        if is_internal(topic):
            raise InvalidTopicName(f"the topic {topic!r} belongs to the broker")
        partition = connection.broker.topics.partition(TopicPartition(topic, number))
        if request.transactional_id is None:
            appended, durable = partition.append(records, acks)
            unsafe = [] if durable is None else [durable]
        else:
            appended, unsafe = connection.broker.transactions.produce(
                request.transactional_id, partition, records, acks
            )
    except FlyMQError as error:
        connection.shared.requests.failed(connection.protocol, error.code)
        return PartitionProduceResponse(number, code_of(error), -1, error_message=error.message)
    if not appended.repeated:
        count = appended.last_offset - appended.base_offset + 1
        connection.broker.traffic.wrote(connection.protocol, topic, count, len(records))
    answer = PartitionProduceResponse(
        number, ErrorCode.NONE, appended.base_offset, appended.append_time_ms, partition.log.start_offset
    )
    waiting += [(answer, future) for future in unsafe]
    return answer


def _finish(response: ProduceResponse, waiting: Waiting) -> ProduceResponse:
    """Return the response now that everything is on the disk, or is known not to get there."""
    for answer, durable in waiting:
        if durable.cancelled() or durable.exception() is not None:
            answer.error_code, answer.base_offset = ErrorCode.KAFKA_STORAGE_ERROR, -1
    return response
