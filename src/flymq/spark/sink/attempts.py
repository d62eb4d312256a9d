"""Task attempts: what one run of a task wrote in its own transaction, to be committed with its batch or aborted.

An attempt's transactional id is `<query>:<batch>:<task>`, so that the broker knows its batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from flymq.client.aio.coordinators import TRANSACTION
from flymq.model.errors import FlyMQError
from flymq.spark.broker_connection import BrokerConnection, connect
from flymq.spark.options import WriteOptions
from flymq.spark.sink.producing import AttemptProducer
from flymq.wire.native.messages.session import Done
from flymq.wire.native.messages.transactions import AbortTxn, AttemptToCommit, CommitAttempts, EndTxnAnswer


class Attempt(NamedTuple):
    """A task's report. Without a transactional id it has nothing to commit: no rows, or no transaction wanted."""

    query: str
    batch: int
    row_count: int
    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1


def write_attempt(options: WriteOptions, query: str, batch: int, rows: Iterator[pa.RecordBatch]) -> Attempt:
    """Write all rows of a task. If that fails, the transaction is aborted."""
    connection = connect(options.connection(), expects_broker=True)
    context = TaskContext.get()
    assert context is not None
    transactional_id = f"{query}:{batch}:{context.partitionId()}-{context.taskAttemptId()}"
    producer = AttemptProducer(
        connection,
        options,
        transactional_id=transactional_id if options.delivery == "exactly_once" else "",
        first_turn=context.partitionId(),
    )
    try:
        for batch_rows in rows:
            producer.write(batch_rows)
        producer.finish()
    except BaseException:
        producer.abort()
        raise
    identity = producer.identity
    if identity is None or options.delivery != "exactly_once":
        return Attempt(query, batch, producer.row_count)
    return Attempt(query, batch, producer.row_count, transactional_id, identity.producer_id, identity.producer_epoch)


def commit_attempts(options: WriteOptions, query: str, batch: int, attempts: Sequence[Attempt]) -> None:
    """Commit these attempts atomically and abort all others of the batch. Idempotent."""
    if options.delivery == "exactly_once":
        _commit(
            _driver_connection(options), query, batch, [attempt for attempt in attempts if attempt.transactional_id]
        )


def drop_attempts(options: WriteOptions, query: str, batch: int) -> None:
    """Abort a batch and all its attempts; no effect if it was committed."""
    if options.delivery == "exactly_once":
        _commit(_driver_connection(options), query, batch, [])


def abort_attempts(options: WriteOptions, attempts: Sequence[Attempt]) -> None:
    """Abort these attempts, so that the batch can be written again. The broker rejects this for committed ones."""
    connection = _driver_connection(options)
    for attempt in attempts:
        if attempt.transactional_id:
            request = AbortTxn(
                transactional_id=attempt.transactional_id,
                producer_id=attempt.producer_id,
                producer_epoch=attempt.producer_epoch,
            )
            with suppress(FlyMQError):  # committed or aborted before; an attempt that cannot be aborted now times out
                name = attempt.transactional_id
                connection.run(connection.cluster.coordinators.tell(TRANSACTION, name, request, EndTxnAnswer))


def _commit(connection: BrokerConnection, query: str, batch: int, attempts: Sequence[Attempt]) -> None:
    request = CommitAttempts(
        query=query,
        batch=batch,
        attempts=[
            AttemptToCommit(attempt.transactional_id, attempt.producer_id, attempt.producer_epoch)
            for attempt in attempts
        ],
    )
    connection.run(connection.cluster.coordinators.ask(TRANSACTION, query, request, Done))


def _driver_connection(options: WriteOptions) -> BrokerConnection:
    return connect(options.connection(), expects_broker=True)
