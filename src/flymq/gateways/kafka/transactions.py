"""Producer identities and transactions.

Kafka's producers do not begin a transaction explicitly. There are two kinds of them, with different request versions:

- With KIP-890 (Produce 12, TxnOffsetCommit 5, EndTxn 5) a transaction begins with its first write, and its end gives
  the producer a new epoch. They choose these versions since ApiVersions has the feature `transaction.version`.
- Older ones add each partition and group before they write to it, and keep their epoch, unless they request a new one.
"""

from __future__ import annotations

from typing import Any

from flymq.broker.safety import Safe, all_safe, outcome_of
from flymq.broker.service.groups import Committer
from flymq.broker.service.transactions import Joining, ProducerIdentity, TransactionState
from flymq.gateways.connection import AnswerLater, answer_when
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.group_offsets import to_offsets
from flymq.model.errors import (
    FlyMQError,
    InvalidTransactionState,
    ProducerFenced,
    StaleConnection,
    StaleMemberEpoch,
    StorageError,
    TransactionAborted,
    UnknownProducer,
    WrongProducerId,
)
from flymq.model.names import TopicPartition
from flymq.wire.kafka.messages import add_offsets_to_txn as groups_wire
from flymq.wire.kafka.messages import add_partitions_to_txn as partitions_wire
from flymq.wire.kafka.messages import describe_transactions as description
from flymq.wire.kafka.messages import list_transactions as listing
from flymq.wire.kafka.messages import txn_offset_commit as offsets_wire
from flymq.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from flymq.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_STATES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.COMMITTING: "PrepareCommit",
    TransactionState.ABORTING: "PrepareAbort",
    TransactionState.COMMITTED: "CompleteCommit",
    TransactionState.ABORTED: "CompleteAbort",
}
_FENCED_HAS_A_NAME_FROM = 2
_FENCED_AT_INIT_HAS_A_NAME_FROM = 4
_BATCHED_FROM = 4
"""AddPartitionsToTxn: several transactions in one request."""
_OFFSETS_BEGIN_FROM = 5
_NEW_EPOCH_FROM = 5


def _code(error: FlyMQError, *, names_fenced: bool, has_new_epochs: bool = False) -> ErrorCode:
    """Return the Kafka error code in transactional APIs, where some errors have other codes.

    A producer whose transaction the broker has aborted must abort it too, and can then continue. To clients with
    KIP-890 that is TRANSACTION_ABORTABLE. Older ones abort and request a new epoch after UNKNOWN_PRODUCER_ID; a stale
    epoch would mean to them that another producer has fenced them, and is fatal.
    """
    if isinstance(error, TransactionAborted):
        return ErrorCode.TRANSACTION_ABORTABLE if has_new_epochs else ErrorCode.UNKNOWN_PRODUCER_ID
    if isinstance(error, UnknownProducer | WrongProducerId):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if isinstance(error, ProducerFenced) and names_fenced:
        return ErrorCode.PRODUCER_FENCED
    if isinstance(error, StaleMemberEpoch):
        return ErrorCode.ILLEGAL_GENERATION
    return code_of(error)


def _refuse_late(connection: KafkaConnection, error: FlyMQError) -> None:
    """Close a connection whose requests are late: a client that still uses it opens another one, and repeats them."""
    if isinstance(error, StaleConnection):
        connection.abort()


# --- identities -----------------------------------------------------------------------------------------------------


async def init_producer_id(
    connection: KafkaConnection, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    transactions, caller, name = connection.service.transactions, connection.caller, request.transactional_id
    if name is None:
        return InitProducerIdResponse(producer_id=(await transactions.new_producer(caller)).producer_id)
    if not name:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    renews, fenced_has_a_name = None, version >= _FENCED_AT_INIT_HAS_A_NAME_FROM
    if request.producer_id >= 0:
        renews = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        producer = await transactions.init(caller, name, request.transaction_timeout_ms, renews=renews)
    except WrongProducerId:  # here it is another producer that has taken the transactional id over
        code = ErrorCode.PRODUCER_FENCED if fenced_has_a_name else ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    except FlyMQError as error:
        return InitProducerIdResponse(error_code=_code(error, names_fenced=fenced_has_a_name), producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


# --- within a transaction -------------------------------------------------------------------------------------------


def add_partitions_to_txn(
    connection: KafkaConnection, request: partitions_wire.AddPartitionsToTxnRequest, version: int
) -> Any:
    if version >= _BATCHED_FROM:
        return _add_to_transactions(connection, request)
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    names = _partitions(request.topics)
    codes, safe = _check_partitions(connection, names), None
    if not codes:
        try:
            safe = connection.service.transactions.add(
                connection.caller, request.transactional_id, producer, partitions=names, keeps_epoch=True
            )
        except FlyMQError as error:
            _refuse_late(connection, error)
            codes = dict.fromkeys(names, _code(error, names_fenced=version >= _FENCED_HAS_A_NAME_FROM))

    def answer(error: FlyMQError | None) -> partitions_wire.AddPartitionsToTxnResponse:
        found = codes if error is None else dict.fromkeys(names, code_of(error))
        results = _results(request.topics, found)
        return partitions_wire.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    return answer(None) if safe is None else AnswerLater(outcome_of(safe), answer)


def _add_to_transactions(connection: KafkaConnection, request: partitions_wire.AddPartitionsToTxnRequest) -> Any:
    """Add partitions to several transactions, or verify that they are part of them."""
    results = []
    safe: list[Safe] = []
    for each in request.transactions:
        names = _partitions(each.topics)
        codes = _check_partitions(connection, names)
        if not codes:
            try:
                safe.append(_add_or_verify(connection, each, names))
            except FlyMQError as error:
                codes = dict.fromkeys(names, _code(error, names_fenced=True, has_new_epochs=True))
                if each.verify_only and isinstance(error, InvalidTransactionState):
                    codes = dict.fromkeys(names, ErrorCode.TRANSACTION_ABORTABLE)
        results.append(partitions_wire.AddPartitionsToTxnResult(each.transactional_id, _results(each.topics, codes)))
    response = partitions_wire.AddPartitionsToTxnResponse(results_by_transaction=results)
    return answer_when(all_safe(safe), lambda: response)


def _add_or_verify(
    connection: KafkaConnection, each: partitions_wire.AddPartitionsToTxnTransaction, names: list[TopicPartition]
) -> Safe:
    transactions, caller = connection.service.transactions, connection.caller
    producer = ProducerIdentity(each.producer_id, each.producer_epoch)
    if each.verify_only:
        transactions.check_added(caller, each.transactional_id, producer, names)
        return None
    return transactions.add(caller, each.transactional_id, producer, partitions=names)


def _partitions(topics: list[partitions_wire.AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def _check_partitions(connection: KafkaConnection, names: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """Return no error code, or one for each: all of the partitions are added, or none."""
    errors = connection.service.transactions.check_partitions(connection.caller, names)
    codes = dict.fromkeys(names, ErrorCode.OPERATION_NOT_ATTEMPTED) if errors else {}
    return codes | {name: code_of(error) for name, error in errors.items()}


def _results(
    topics: list[partitions_wire.AddPartitionsToTxnTopic], codes: dict[TopicPartition, ErrorCode]
) -> list[partitions_wire.AddPartitionsToTxnTopicResult]:
    return [
        partitions_wire.AddPartitionsToTxnTopicResult(
            topic.name,
            [
                partitions_wire.AddPartitionsToTxnPartitionResult(
                    number, codes.get(TopicPartition(topic.name, number), ErrorCode.NONE)
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]


def add_offsets_to_txn(connection: KafkaConnection, request: groups_wire.AddOffsetsToTxnRequest, version: int) -> Any:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        safe = connection.service.transactions.add(
            connection.caller, request.transactional_id, producer, groups=[request.group_id], keeps_epoch=True
        )
    except FlyMQError as error:
        _refuse_late(connection, error)
        return groups_wire.AddOffsetsToTxnResponse(
            error_code=_code(error, names_fenced=version >= _FENCED_HAS_A_NAME_FROM)
        )
    return answer_when(safe, groups_wire.AddOffsetsToTxnResponse)


async def txn_offset_commit(
    connection: KafkaConnection, request: offsets_wire.TxnOffsetCommitRequest, version: int
) -> offsets_wire.TxnOffsetCommitResponse:
    begins = version >= _OFFSETS_BEGIN_FROM
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    committer = Committer(request.member_id, request.generation_id, request.group_instance_id or "")
    offsets = to_offsets(request.topics)
    try:
        errors = await connection.service.transactions.commit_offsets(
            connection.caller,
            request.transactional_id,
            producer,
            request.group_id,
            committer,
            offsets,
            Joining.BEGINS if begins else Joining.ANNOUNCED,
        )
    except FlyMQError as error:
        errors = dict.fromkeys(offsets, error)
    codes = {name: _code(error, names_fenced=False, has_new_epochs=begins) for name, error in errors.items()}
    topics = [
        offsets_wire.TxnOffsetCommitResponseTopic(
            topic.name,
            [
                offsets_wire.TxnOffsetCommitResponsePartition(
                    part.partition_index, codes.get(TopicPartition(topic.name, part.partition_index), ErrorCode.NONE)
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return offsets_wire.TxnOffsetCommitResponse(topics=topics)


async def end_txn(connection: KafkaConnection, request: EndTxnRequest, version: int) -> EndTxnResponse:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    has_new_epochs = version >= _NEW_EPOCH_FROM
    try:
        successor = await connection.service.transactions.end(
            connection.caller,
            request.transactional_id,
            producer,
            commit=request.committed,
            keeps_epoch=not has_new_epochs,
        )
    except FlyMQError as error:
        _refuse_late(connection, error)
        if isinstance(error, StorageError):
            # The end may have been decided, and be on the disk. After an error of the disk clients would abort, and be
            # told that they have, since nothing is open any more; after this one they send the same request again.
            return EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        code = _code(error, names_fenced=version >= _FENCED_HAS_A_NAME_FROM, has_new_epochs=has_new_epochs)
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(producer_id=successor.producer_id, producer_epoch=successor.epoch)


# --- administration -------------------------------------------------------------------------------------------------


def list_transactions(
    connection: KafkaConnection, request: listing.ListTransactionsRequest, _version: int
) -> listing.ListTransactionsResponse:
    known = set(_STATES.values())
    states = set(request.state_filters) & known
    producer_ids = set(request.producer_id_filters)
    now_ms = connection.shared.clock.now_ms()
    found = []
    pattern = request.transactional_id_pattern or ""
    for name, value in connection.service.transactions.all(connection.caller, matching=pattern):
        age_ms = now_ms - value.began_at_ms if value.began_at_ms >= 0 else -1
        if (
            (not request.state_filters or _STATES[value.state] in states)
            and (not producer_ids or value.producer.producer_id in producer_ids)
            and (request.duration_filter < 0 or age_ms > request.duration_filter)
        ):
            found.append(listing.TransactionState(name, value.producer.producer_id, _STATES[value.state]))
    unknown = [state for state in request.state_filters if state not in known]
    return listing.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def describe_transactions(
    connection: KafkaConnection, request: description.DescribeTransactionsRequest, _version: int
) -> description.DescribeTransactionsResponse:
    found = []
    for name in request.transactional_ids:
        try:
            value = connection.service.transactions.get(connection.caller, name)
        except FlyMQError as error:
            found.append(description.TransactionState(code_of(error), name))
            continue
        topics: dict[str, list[int]] = {}
        for topic, number in value.partitions:
            topics.setdefault(topic, []).append(number)
        found.append(
            description.TransactionState(
                ErrorCode.NONE,
                name,
                _STATES[value.state],
                value.timeout_ms,
                value.began_at_ms,
                value.producer.producer_id,
                value.producer.epoch,
                [description.TopicData(topic, numbers) for topic, numbers in topics.items()],
            )
        )
    return description.DescribeTransactionsResponse(transaction_states=found)
