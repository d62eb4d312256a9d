"""Transactions from code without an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from flymq.client.aio.transaction import AsyncTransaction
from flymq.client.deliveries import BatchResult, Delivery
from flymq.client.intake import Headers
from flymq.client.records import RecordMetadata
from flymq.client.sync.loop import LoopThread
from flymq.model.names import TopicPartition


class Transaction:
    """One transaction. As a context manager it commits at the end of the block, and aborts when the block fails."""

    def __init__(self, loop: LoopThread, transaction: AsyncTransaction) -> None:
        self._loop = loop
        self._transaction = transaction

    def begin(self) -> Transaction:
        self._loop.run(self._transaction.begin())
        return self

    def send(self, topic: str, value: Any, key: Any = None, *, headers: Headers | None = None) -> Delivery:
        """Put a record into the transaction; it is written at the latest when the transaction commits."""
        return self._loop.run(self._transaction.send(topic, value, key, headers=headers))

    def produce(self, topic: str, value: Any, key: Any = None, *, headers: Headers | None = None) -> RecordMetadata:
        """Write a record; readers see it once the transaction has committed."""
        return self._loop.run(self._transaction.produce(topic, value, key, headers=headers))

    def produce_batch(self, topic: str, messages: Iterable[Any]) -> BatchResult:
        return self._loop.run(self._transaction.produce_batch(topic, messages))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit consumed offsets with the transaction: they count exactly if it commits."""
        self._loop.run(self._transaction.commit_offsets(group, offsets))

    def commit(self) -> None:
        """Make everything visible. Raises, and leaves the transaction to be aborted, if a record was not written."""
        self._loop.run(self._transaction.commit())

    def abort(self) -> None:
        """Make nothing visible."""
        self._loop.run(self._transaction.abort())

    def __enter__(self) -> Transaction:
        self._loop.run(self._transaction.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._transaction.__aexit__(kind, error, traceback))
