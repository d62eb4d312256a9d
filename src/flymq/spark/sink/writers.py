"""`df.write` and `df.writeStream` of the format "flymq": exactly once, by a two-phase commit.

    task      begin its own transaction, write rows into it, report it             staged: not visible to readers
    driver    send ONE request with the attempts that succeeded                   visible atomically, the rest aborted

The broker stores the last batch of each query. A batch that a restarted query writes again is aborted as a whole; an
attempt that was not reported, of a task that was retried or killed, is aborted with the commit of its batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from flymq.host.entropy import new_id, system_entropy
from flymq.model.errors import InvalidOption
from flymq.spark.error_messages import hints_in_errors
from flymq.spark.options import WriteOptions
from flymq.spark.sink.attempts import Attempt, abort_attempts, commit_attempts, drop_attempts, write_attempt
from flymq.spark.sink.rows import check_columns

Messages = Sequence[WriterCommitMessage | None]

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """What a task reports to the driver."""

    attempt: Attempt


class BatchWriter(DataSourceArrowWriter):
    """One batch write of a DataFrame. Spark creates it once and copies it to the tasks and to the commit."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption(
                "a topic cannot be overwritten", hint='Use .mode("append"); delete and create the topic to empty it.'
            )
        check_columns(schema, options)
        self._options = options
        self._query = options.txn_app_id or f"write-{new_id(system_entropy())}"
        self._batch = options.txn_version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        with hints_in_errors():
            return Written(write_attempt(self._options, self._query, self._batch, iterator))

    def commit(self, messages: Messages) -> None:
        with hints_in_errors():
            commit_attempts(self._options, self._query, self._batch, _attempts(messages))

    def abort(self, messages: Messages) -> None:
        with hints_in_errors():
            if self._options.txn_app_id is None:  # this name is never used again
                drop_attempts(self._options, self._query, self._batch)
            else:
                abort_attempts(self._options, _attempts(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """The micro-batches of a query. Commit and abort run on other copies than `write`, so tasks report the query id."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if options.txn_app_id is not None:
            raise InvalidOption("txnAppId is for batch writes: a stream is identified by its query and batch ids")
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None and batch is not None
        with hints_in_errors():
            return Written(write_attempt(self._options, query, int(batch), iterator))

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        attempts = _attempts(messages)
        if attempts:
            with hints_in_errors():
                commit_attempts(self._options, attempts[0].query, batchId, attempts)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        with hints_in_errors():
            abort_attempts(self._options, _attempts(messages))


def _attempts(messages: Messages) -> list[Attempt]:
    return [message.attempt for message in messages if isinstance(message, Written)]
