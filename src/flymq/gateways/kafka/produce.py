"""Produce: batches for several partitions, each of which succeeds or fails on its own."""

from __future__ import annotations

from flymq.broker.service.records import PartProduced, Produced, ProducePart
from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.model.delivery import Acks
from flymq.model.errors import FlyMQError, InvalidRecord
from flymq.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
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
    parts: list[ProducePart] = [
        (topic.name, part.index, part.records or b"")  # type: ignore[misc]
        for topic in request.topic_data
        for part in topic.partition_data
    ]
    produced = connection.service.records.produce(
        connection.caller, parts, acks, transactional_id=request.transactional_id or ""
    )
    if produced.throttle_ms:
        connection.throttle(produced.throttle_ms)
    if acks is Acks.NONE:
        _close_on_error(connection, produced)
        return None
    return _respond(request, produced) if produced.decided is None else _when_decided(request, produced)


def _close_on_error(connection: KafkaConnection, produced: Produced) -> None:
    """Report an error in the only way there is to a client that expects no response."""
    if any(isinstance(part, FlyMQError) for part in produced.parts):
        connection.close_when_sent()
    elif produced.decided is not None:
        produced.decided.add_done_callback(lambda _: _close_on_error(connection, Produced(produced.parts)))


def _when_decided(request: ProduceRequest, produced: Produced) -> AnswerLater:
    assert produced.decided is not None
    return AnswerLater(produced.decided, lambda _: _respond(request, produced))


def _respond(request: ProduceRequest, produced: Produced) -> ProduceResponse:
    parts = iter(produced.parts)
    return ProduceResponse(
        [
            TopicProduceResponse(topic.name, [_partition(part.index, next(parts)) for part in topic.partition_data])
            for topic in request.topic_data
        ],
        produced.throttle_ms,
    )


def _partition(number: int, part: PartProduced) -> PartitionProduceResponse:
    if isinstance(part, FlyMQError):
        response = PartitionProduceResponse(number, code_of(part), -1, error_message=part.message)
        if isinstance(part, InvalidRecord):
            response.record_errors = [BatchIndexAndErrorMessage(index, part.message) for index in part.indexes]
        return response
    return PartitionProduceResponse(number, ErrorCode.NONE, part.base_offset, part.append_time_ms, part.start_offset)


def _refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name, [PartitionProduceResponse(part.index, code, -1) for part in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )
