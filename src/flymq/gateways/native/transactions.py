"""Producer identities and transactions."""

from __future__ import annotations

from flymq.broker.service.groups import Committer
from flymq.broker.service.transactions import ProducerIdentity
from flymq.gateways.connection import AnswerLater
from flymq.gateways.native.connection import NativeConnection
from flymq.gateways.native.groups import commit_answer, to_offsets
from flymq.wire.native.messages import transactions as wire
from flymq.wire.native.messages.groups import CommitAnswer
from flymq.wire.native.messages.session import Done


async def init_producer(connection: NativeConnection, request: wire.InitProducer) -> wire.InitProducerAnswer:
    transactions, caller = connection.service.transactions, connection.caller
    if request.transactional_id:
        producer = await transactions.init(caller, request.transactional_id, request.transaction_timeout_ms)
    else:
        producer = await transactions.new_producer(caller)
    return wire.InitProducerAnswer(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def begin(connection: NativeConnection, request: wire.BeginTxn) -> Done | AnswerLater:
    safe = connection.service.transactions.begin(connection.caller, request.transactional_id, _producer(request))
    return Done() if safe is None else AnswerLater(safe, lambda _: Done())


async def commit(connection: NativeConnection, request: wire.CommitTxn) -> wire.EndTxnAnswer:
    return await _end(connection, request, commit=True)


async def abort(connection: NativeConnection, request: wire.AbortTxn) -> wire.EndTxnAnswer:
    return await _end(connection, request, commit=False)


async def _end(
    connection: NativeConnection, request: wire.CommitTxn | wire.AbortTxn, *, commit: bool
) -> wire.EndTxnAnswer:
    successor = await connection.service.transactions.end(
        connection.caller, request.transactional_id, _producer(request), commit=commit
    )
    return wire.EndTxnAnswer(producer_id=successor.producer_id, producer_epoch=successor.epoch)


async def commit_offsets(connection: NativeConnection, request: wire.TxnCommitOffsets) -> CommitAnswer:
    errors = await connection.service.transactions.commit_offsets(
        connection.caller,
        request.transactional_id,
        _producer(request),
        request.group,
        Committer(request.member, request.generation),
        to_offsets(request.offsets),
    )
    return commit_answer(request.offsets, errors)


async def commit_attempts(connection: NativeConnection, request: wire.CommitAttempts) -> Done:
    listed = {attempt.transactional_id: _producer(attempt) for attempt in request.attempts}
    await connection.service.transactions.commit_attempts(connection.caller, request.query, request.batch, listed)
    return Done()


def _producer(
    request: wire.BeginTxn | wire.CommitTxn | wire.AbortTxn | wire.TxnCommitOffsets | wire.AttemptToCommit,
) -> ProducerIdentity:
    return ProducerIdentity(request.producer_id, request.producer_epoch)
