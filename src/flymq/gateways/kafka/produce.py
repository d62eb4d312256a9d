"""Produce: batches for several partitions, each of which succeeds or fails on its own.

From version 12 on (KIP-890) the first batch of a transaction begins it, and the first one to a partition adds that to
it. With older versions the partition must have been added.

From version 13 on topics have ids instead of names, so that no batch gets into a topic that was created again.
"""

from __future__ import annotations

from flymq.broker.service.records import Joining, PartProduced, Produced, ProducePart
from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.current_leader import NOT_LED, CurrentLeaders
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.model.delivery import Acks
from flymq.model.errors import (
    CoordinatorLoading,
    CoordinatorOffline,
    CoordinatorUnavailable,
    FlyMQError,
    InvalidRecord,
    InvalidTransactionState,
    NotCoordinator,
    StaleConnection,
    TopicNotFound,
    TransactionAborted,
    TransactionInProgress,
)
from flymq.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_ACKS = {acks.value: acks for acks in Acks}
_LEADERS_FROM = 10
_ABORTABLE_FROM = 11
_BEGINS_FROM = 12
_BY_ID_FROM = 13
_COORDINATOR_AWAY = (CoordinatorLoading, CoordinatorOffline, CoordinatorUnavailable, NotCoordinator)
"""A transaction could not be verified."""


def produce(connection: KafkaConnection, request: ProduceRequest, version: int) -> ProduceResponse | AnswerLater | None:
    acks = _ACKS.get(request.acks)
    if acks is None:
        return _refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if version >= _BY_ID_FROM:
        _fill_in_names(connection, request)
    parts: list[ProducePart] = [
        (topic.name, part.index, part.records or b"")  # type: ignore[misc]
        for topic in request.topic_data
        for part in topic.partition_data
    ]
    produced = connection.service.records.produce(
        connection.caller,
        parts,
        acks,
        transactional_id=request.transactional_id or "",
        joining=Joining.BEGINS if version >= _BEGINS_FROM else Joining.ANNOUNCED,
    )
    if produced.throttle_ms:
        connection.throttle(produced.throttle_ms)
    if request.transactional_id and _is_stale(produced):
        connection.abort()
        return None
    if acks is Acks.NONE:
        _close_on_error(connection, produced)
        return None
    if produced.decided is None:
        return _respond(connection, request, produced, version)
    return AnswerLater(produced.decided, lambda _: _respond_later(connection, request, produced, version))


def _fill_in_names(connection: KafkaConnection, request: ProduceRequest) -> None:
    """Look the names of the topics up. No topic has the empty name, which those with an unknown id keep."""
    for topic in request.topic_data:
        found = connection.service.topics.find_by_id(connection.caller, topic.topic_id)
        topic.name = "" if found is None else found.name


def _is_stale(produced: Produced) -> bool:
    """Whether the client has given this connection up, or opens another one and repeats the request."""
    return any(isinstance(part, StaleConnection) for part in produced.parts)


def _respond_later(
    connection: KafkaConnection, request: ProduceRequest, produced: Produced, version: int
) -> ProduceResponse:
    if request.transactional_id and _is_stale(produced):
        connection.abort()
    return _respond(connection, request, produced, version)


def _close_on_error(connection: KafkaConnection, produced: Produced) -> None:
    """Report an error in the only way there is to a client that expects no response."""
    if any(isinstance(part, FlyMQError) for part in produced.parts):
        connection.close_when_sent()
    elif produced.decided is not None:
        produced.decided.add_done_callback(lambda _: _close_on_error(connection, Produced(produced.parts)))


def _respond(connection: KafkaConnection, request: ProduceRequest, produced: Produced, version: int) -> ProduceResponse:
    parts = iter(produced.parts)
    response = ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [_partition(part.index, next(parts), version) for part in topic.partition_data],
            )
            for topic in request.topic_data
        ],
        produced.throttle_ms,
    )
    if version >= _LEADERS_FROM and any(isinstance(part, FlyMQError) for part in produced.parts):
        _name_leaders(connection, response)
    return response


def _name_leaders(connection: KafkaConnection, response: ProduceResponse) -> None:
    leaders = CurrentLeaders(connection)
    for topic in response.responses:
        for part in topic.partition_responses:
            if part.error_code in NOT_LED:
                known = connection.service.topics.find(connection.caller, topic.name)
                if (leader := leaders.find(known, part.index)) is not None:
                    part.current_leader = LeaderIdAndEpoch(*leader)
    response.node_endpoints = [NodeEndpoint(*each) for each in leaders.endpoints]


def _partition(number: int, part: PartProduced, version: int) -> PartitionProduceResponse:
    if isinstance(part, FlyMQError):
        code = _code(part, version)
        message = "there is no topic with this id" if code is ErrorCode.UNKNOWN_TOPIC_ID else part.message
        response = PartitionProduceResponse(number, code, -1, error_message=message)
        if isinstance(part, InvalidRecord):
            response.record_errors = [BatchIndexAndErrorMessage(index, part.message) for index in part.indexes]
        return response
    return PartitionProduceResponse(number, ErrorCode.NONE, part.base_offset, part.append_time_ms, part.start_offset)


def _code(error: FlyMQError, version: int) -> ErrorCode:
    """Return the Kafka error code. Producers abort after some errors of transactions, if the code says so.

    After INVALID_PRODUCER_EPOCH, as Kafka has it for a transaction that has timed out, librdkafka cannot go on.
    """
    if isinstance(error, TransactionAborted):
        return ErrorCode.TRANSACTION_ABORTABLE if version >= _BEGINS_FROM else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if isinstance(error, InvalidTransactionState) and version >= _ABORTABLE_FROM:
        return ErrorCode.TRANSACTION_ABORTABLE
    if isinstance(error, TopicNotFound) and version >= _BY_ID_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if isinstance(error, TransactionInProgress) and version < _BEGINS_FROM:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # older clients retry after this one only
    if isinstance(error, _COORDINATOR_AWAY):
        return ErrorCode.NOT_ENOUGH_REPLICAS  # clients do not expect errors of coordinators here, and retry after this
    return code_of(error)


def _refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(part.index, code, -1) for part in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
