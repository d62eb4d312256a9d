"""Transactions for blocking code. Records are batched in the caller's thread, as in `Producer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from flymq.client.aio.transaction import AsyncTransaction
from flymq.client.appender import Headers
from flymq.client.deliveries import BatchResult, Delivery
from flymq.client.records import RecordMetadata
from flymq.client.sync.consumer import Consumer
from flymq.client.sync.loop import LoopThread
from flymq.client.sync.producer import Producer
from flymq.model.names import TopicPartition


class Transaction:
    """One transaction. As a context manager it commits at the end of the block, and aborts when the block fails."""

    def __init__(self, loop: LoopThread, transaction: AsyncTransaction) -> None:
        self._loop = loop
        self._transaction = transaction
        self._producer = Producer(loop, transaction.producer)

    def begin(self) -> Transaction:
        """Begin; the context manager does so by itself."""
        self._loop.run(self._transaction.begin())
        return self

    def send(self, topic: str, value: Any, key: Any = None, *, headers: Headers | None = None) -> Delivery:
        """Add a record to the transaction; it is written by the time the transaction commits."""
        self._transaction.check_open()
        return self._producer.send(topic, value, key, headers=headers)

    def produce(self, topic: str, value: Any, key: Any = None, *, headers: Headers | None = None) -> RecordMetadata:
        """Write a record; consumers see it once the transaction has committed."""
        self._transaction.check_open()
        return self._producer.produce(topic, value, key, headers=headers)

    def produce_batch(self, topic: str, messages: Iterable[Any]) -> BatchResult:
        """Write many records; consumers see them once the transaction has committed."""
        self._transaction.check_open()
        return self._producer.produce_batch(topic, messages)

    def commit_consumed(self, consumer: Consumer) -> None:
        """Commit the offsets of a group's consumer as part of the transaction: they count only if it commits.

        The consumer must not commit by itself: create it with auto_commit=False.
        """
        self._loop.run(self._transaction.commit_consumed(consumer.asynchronous))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets (the next to read) of a group without members, as part of the transaction."""
        self._loop.run(self._transaction.commit_offsets(group, offsets))

    def commit(self) -> None:
        """Commit: make everything visible. Raises if a record was not written; the transaction must then be aborted."""
        self._loop.run(self._transaction.commit())

    def abort(self) -> None:
        """Abort: nothing becomes visible."""
        self._loop.run(self._transaction.abort())

    def __enter__(self) -> Transaction:
        self._loop.run(self._transaction.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._transaction.__aexit__(kind, error, traceback))
