"""Producer identities and transactions."""

from __future__ import annotations

from flymq.broker.coordinators.groups import Committer
from flymq.coordination.attempts import Attempt
from flymq.coordination.entries import ProducerIdentity
from flymq.gateways.native.connection import NativeConnection
from flymq.gateways.native.groups import commit_answer, to_offsets
from flymq.gateways.native.waiting import Later, when_done
from flymq.wire.native.messages import transactions as wire
from flymq.wire.native.messages.groups import CommitAnswer
from flymq.wire.native.messages.session import Done


async def init_producer(connection: NativeConnection, request: wire.InitProducer) -> wire.InitProducerAnswer:
    broker = connection.broker
    if request.transactional_id:
        producer = await broker.transactions.init(request.transactional_id, request.transaction_timeout_ms)
    else:
        producer = ProducerIdentity(await broker.producer_ids.take(), 0)
    return wire.InitProducerAnswer(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def begin(connection: NativeConnection, request: wire.BeginTxn) -> Done:
    connection.broker.transactions.begin(request.transactional_id, _producer(request))
    return Done()


async def commit(connection: NativeConnection, request: wire.CommitTxn) -> wire.EndTxnAnswer:
    return await _end(connection, request, commit=True)


async def abort(connection: NativeConnection, request: wire.AbortTxn) -> wire.EndTxnAnswer:
    return await _end(connection, request, commit=False)


async def _end(
    connection: NativeConnection, request: wire.CommitTxn | wire.AbortTxn, *, commit: bool
) -> wire.EndTxnAnswer:
    successor = await connection.broker.transactions.end(request.transactional_id, _producer(request), commit=commit)
    return wire.EndTxnAnswer(producer_id=successor.producer_id, producer_epoch=successor.epoch)


def commit_offsets(connection: NativeConnection, request: wire.TxnCommitOffsets) -> CommitAnswer | Later:
    errors, waiting = connection.broker.transactions.commit_offsets(
        request.transactional_id,
        _producer(request),
        request.group,
        Committer(request.member, request.generation),
        to_offsets(request.offsets, connection.broker.clock.now_ms()),
    )
    answer = commit_answer(request.offsets, errors)
    return when_done(waiting, answer) if waiting else answer


async def commit_attempts(connection: NativeConnection, request: wire.CommitAttempts) -> Done:
    listed = {attempt.transactional_id: _producer(attempt) for attempt in request.attempts}
    await connection.broker.transactions.commit_attempts(Attempt(request.query, request.batch), listed)
    return Done()


def _producer(
    request: wire.BeginTxn | wire.CommitTxn | wire.AbortTxn | wire.TxnCommitOffsets | wire.AttemptToCommit,
) -> ProducerIdentity:
    return ProducerIdentity(request.producer_id, request.producer_epoch)
