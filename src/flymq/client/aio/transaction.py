"""Transactions: write to several topics atomically.

What an error means for the transaction: a `retriable` one was retried already and the call may be repeated; after any
other the transaction must be aborted, which the context manager does. After `TransactionAborted` the broker has aborted
it, and the work can be repeated from the start; after `ProducerFenced` another instance has taken over: stop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.consumer import AsyncConsumer
from flymq.client.aio.coordinators import GROUP, TRANSACTION
from flymq.client.aio.producer import AsyncProducer
from flymq.client.appender import Headers
from flymq.client.deliveries import BatchResult, Delivery
from flymq.client.records import RecordMetadata
from flymq.model.errors import FlyMQError, InvalidTransactionState, ProducerFenced, TransactionAborted
from flymq.model.names import TopicPartition
from flymq.wire.native.messages import groups, transactions
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.session import Done

M = TypeVar("M", bound=Message)


class AsyncTransaction:
    """One transaction. As a context manager it commits at the end of the block, and aborts when the block fails."""

    def __init__(
        self,
        cluster: Cluster,
        producer: AsyncProducer,
        on_end: Callable[[AsyncProducer], None],
    ) -> None:
        self._cluster = cluster
        self.producer = producer
        self._on_end = on_end
        self._is_open = False

    async def begin(self) -> AsyncTransaction:
        """Begin; the context manager does so by itself."""
        if self._is_open:
            raise InvalidTransactionState("the transaction has already begun")
        await self._begin()
        self._is_open = True
        return self

    async def _begin(self) -> None:
        sender = self.producer.sender
        await sender.identify()
        try:
            await self._ask(self._request(transactions.BeginTxn), Done)
        except TransactionAborted:  # the broker has aborted the previous one: continue with a new epoch
            sender.reset_identity()
            await sender.identify()
            await self._ask(self._request(transactions.BeginTxn), Done)

    async def _ask(self, request: Message, answer: type[M]) -> M:
        name = self.producer.sender.transactional_id
        return await self._cluster.coordinators.ask(TRANSACTION, name, request, answer)

    # --- what it contains -------------------------------------------------------------------------------------------

    async def send(self, topic: str, value: Any, key: Any = None, *, headers: Headers | None = None) -> Delivery:
        """Add a record to the transaction; it is written by the time the transaction commits."""
        self.check_open()
        return await self.producer.send(topic, value, key, headers=headers)

    async def produce(
        self, topic: str, value: Any, key: Any = None, *, headers: Headers | None = None
    ) -> RecordMetadata:
        """Write a record; consumers see it once the transaction has committed."""
        self.check_open()
        return await self.producer.produce(topic, value, key, headers=headers)

    async def produce_batch(self, topic: str, messages: Iterable[Any]) -> BatchResult:
        """Write many records; consumers see them once the transaction has committed."""
        self.check_open()
        return await self.producer.produce_batch(topic, messages)

    async def commit_consumed(self, consumer: AsyncConsumer) -> None:
        """Commit the offsets of a group's consumer as part of the transaction: they count only if it commits.

        The consumer must not commit by itself: create it with auto_commit=False.
        """
        membership, offsets = consumer.consumed()
        await self._commit_offsets(membership.group, offsets, membership.member, membership.generation)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets (the next to read) of a group without members, as part of the transaction."""
        await self._commit_offsets(group, offsets, "", groups.NO_GENERATION)

    async def _commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], member: str, generation: int
    ) -> None:
        self.check_open()
        request = self._request(
            transactions.TxnCommitOffsets,
            group=group,
            offsets=[groups.OffsetToCommit(topic, partition, int(at)) for (topic, partition), at in offsets.items()],
            member=member,
            generation=generation,
        )
        # The group's coordinator checks with the transaction's that the producer may do so.
        await self._cluster.coordinators.ask(GROUP, group, request, groups.CommitAnswer)

    # --- its end ----------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit: make everything visible. Raises if a record was not written; the transaction must then be aborted."""
        self.check_open()
        await self.producer.flush()
        await self._end(transactions.CommitTxn)

    async def abort(self) -> None:
        """Abort: nothing becomes visible."""
        self.check_open()
        with contextlib.suppress(FlyMQError):  # a failed record is one more reason to abort
            await self.producer.flush()
        with contextlib.suppress(TransactionAborted):
            await self._end(transactions.AbortTxn)

    async def __aenter__(self) -> AsyncTransaction:
        return self if self._is_open else await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_open:
            return
        if kind is None:
            try:
                await self.commit()
            except FlyMQError as failure:
                await self._abort_after(failure)
                raise
        else:
            await self._abort_after(error)

    async def _abort_after(self, error: BaseException | None) -> None:
        """Abort because of an error; that error is raised, even if the abort fails too."""
        if self._is_open and not isinstance(error, ProducerFenced):
            with contextlib.suppress(FlyMQError):  # the broker aborts it at its timeout
                await self.abort()
        self._close()

    async def _end(self, kind: type[transactions.CommitTxn | transactions.AbortTxn]) -> None:
        try:
            answer = await self._ask(self._request(kind), transactions.EndTxnAnswer)
        except TransactionAborted:
            self.producer.sender.reset_identity()
            self._close()
            raise
        self.producer.sender.set_identity(answer.producer_id, answer.producer_epoch)
        self._close()

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._on_end(self.producer)

    def _request(self, kind: Any, **fields: Any) -> Any:
        identity = self.producer.sender.identity()
        return kind(
            transactional_id=self.producer.sender.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            **fields,
        )

    def check_open(self) -> None:
        """Raise unless records can be put into the transaction."""
        if not self._is_open:
            raise InvalidTransactionState("the transaction has not begun, or has ended")
