"""Write to several topics all at once or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.producer import AsyncProducer
from flymq.client.deliveries import BatchResult, Delivery
from flymq.client.intake import Headers
from flymq.client.records import RecordMetadata
from flymq.model.errors import FlyMQError, InvalidTransactionState, ProducerFenced
from flymq.model.names import TopicPartition
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages import groups, transactions
from flymq.wire.native.messages.session import Done


class AsyncTransaction:
    """One transaction. As a context manager it commits at the end of the block, and aborts when the block fails."""

    def __init__(self, cluster: Cluster, producer: AsyncProducer, transactional_id: str) -> None:
        self._cluster = cluster
        self._producer = producer
        self._id = transactional_id
        self._is_open = False

    async def begin(self) -> AsyncTransaction:
        connection = await self._cluster.connection()
        await self._producer.sender.identify(connection)
        await self._cluster.tell(self._request(transactions.BeginTxn), Done)
        self._is_open = True
        return self

    async def send(self, topic: str, value: Any, key: Any = None, *, headers: Headers | None = None) -> Delivery:
        """Put a record into the transaction; it is written at the latest when the transaction commits."""
        self._check_open()
        return await self._producer.send(topic, value, key, headers=headers)

    async def produce(
        self, topic: str, value: Any, key: Any = None, *, headers: Headers | None = None
    ) -> RecordMetadata:
        """Write a record; readers see it once the transaction has committed."""
        self._check_open()
        return await self._producer.produce(topic, value, key, headers=headers)

    async def produce_batch(self, topic: str, messages: Iterable[Any]) -> BatchResult:
        self._check_open()
        return await self._producer.produce_batch(topic, messages)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit consumed offsets with the transaction: they count exactly if it commits."""
        self._check_open()
        identity = self._producer.sender.identity()
        request = transactions.TxnCommitOffsets(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group=group,
            offsets=[groups.OffsetToCommit(topic, partition, offset) for (topic, partition), offset in offsets.items()],
        )
        for part in (await self._cluster.tell(request, groups.CommitAnswer)).partitions:
            if part.error is not None:
                raise error_of(part.error)

    async def commit(self) -> None:
        """Make everything visible. Raises, and leaves the transaction to be aborted, if a record was not written."""
        self._check_open()
        await self._producer.flush()
        await self._end(transactions.CommitTxn)

    async def abort(self) -> None:
        """Make nothing visible."""
        self._check_open()
        with contextlib.suppress(FlyMQError):  # a record that was not written is one more reason to abort
            await self._producer.flush()
        await self._end(transactions.AbortTxn)

    async def __aenter__(self) -> AsyncTransaction:
        return self if self._is_open else await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_open:
            return
        if kind is not None:
            if not isinstance(error, ProducerFenced):
                await self.abort()
            return
        try:
            await self.commit()
        except FlyMQError:
            if self._is_open:
                await self.abort()
            raise

    async def _end(self, kind: type[transactions.CommitTxn | transactions.AbortTxn]) -> None:
        answer = await self._cluster.tell(self._request(kind), transactions.EndTxnAnswer)
        self._is_open = False
        self._producer.sender.set_identity(answer.producer_id, answer.producer_epoch)

    def _request(self, kind: Any) -> Any:
        identity = self._producer.sender.identity()
        return kind(transactional_id=self._id, producer_id=identity.producer_id, producer_epoch=identity.producer_epoch)

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidTransactionState("the transaction has not begun, or has ended")
