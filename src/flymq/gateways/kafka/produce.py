"""Produce: batches for several partitions, each of which succeeds or fails on its own."""

from __future__ import annotations

from flymq.broker.service.records import PartProduced, Produced, ProducePart
from flymq.gateways.connection import AnswerLater, answer_when
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.model.delivery import Acks
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_ACKS = {acks.value: acks for acks in Acks}


def produce(
    connection: KafkaConnection, request: ProduceRequest, _version: int
) -> ProduceResponse | AnswerLater | None:
    acks = _ACKS.get(request.acks)
    if acks is None:
        return _refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
    parts = [
        ProducePart(TopicPartition(topic.name, part.index), part.records or b"")  # type: ignore[arg-type]
        for topic in request.topic_data
        for part in topic.partition_data
    ]
    produced = connection.service.records.produce(
        connection.caller, parts, acks, transactional_id=request.transactional_id or ""
    )
    connection.throttle(produced.throttle_ms)
    if acks is Acks.NONE:
        if any(part.error is not None for part in produced.parts):
            connection.close_when_sent()  # the only way to report an error to a client that expects no response
        return None
    return answer_when(produced.decided, lambda: _respond(request, produced))  # type: ignore[no-any-return]


def _respond(request: ProduceRequest, produced: Produced) -> ProduceResponse:
    parts = iter(produced.parts)
    return ProduceResponse(
        [
            TopicProduceResponse(topic.name, [_partition(next(parts)) for _ in topic.partition_data])
            for topic in request.topic_data
        ],
        produced.throttle_ms,
    )


def _partition(part: PartProduced) -> PartitionProduceResponse:
    written, number = part.written, part.name.partition
    if written is None:
        assert part.error is not None, "a part succeeds or fails"
        return PartitionProduceResponse(number, code_of(part.error), -1, error_message=part.error.message)
    return PartitionProduceResponse(
        number, ErrorCode.NONE, written.base_offset, written.append_time_ms, written.start_offset
    )


def _refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name, [PartitionProduceResponse(part.index, code, -1) for part in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )
