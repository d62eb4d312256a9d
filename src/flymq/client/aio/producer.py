"""The producer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from flymq.client.accumulator import BufferFull
from flymq.client.aio.cluster import Cluster
from flymq.client.aio.sender import Sender
from flymq.client.appender import Headers, RecordAppender, SplitRecords
from flymq.client.deliveries import Batch, BatchResult, Delivery, OnDelivery, settled
from flymq.client.encryption import Cipher
from flymq.client.records import RecordMetadata
from flymq.client.settings import ProducerConfig

if TYPE_CHECKING:
    from flymq.client.tracing import Tracing


class AsyncProducer:
    """Writes records in batches. `send` returns as soon as the record is in a batch, `produce` when it is written."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        cipher: Cipher | None = None,
        tracing: Tracing | None = None,
        *,
        transactional_id: str = "",
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        self.sender = Sender(
            cluster, config, transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )
        new_appender = RecordAppender if tracing is None else tracing.appender
        self.appender = new_appender(self.sender.accumulator, config, cipher)

    async def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Add a record to a batch. Waits only while the buffer is full. Await the delivery for its metadata."""
        queues = self.sender.accumulator.topics.get(topic) or await self.sender.topic(topic)
        while True:
            try:
                delivery = self.appender.append(queues, value, key, partition, headers, timestamp)
                break
            except BufferFull as full:
                await self._until_room(full.size_bytes)
        if on_delivery is not None:
            delivery.add_callback(on_delivery)
        if delivery.index == 0:
            await asyncio.sleep(0)  # yield, or a loop that only sends would never let the batches go out
        return delivery

    async def produce(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Write one record and return its partition and offset."""
        return await (await self.send(topic, value, key, partition=partition, headers=headers, timestamp=timestamp))

    async def produce_batch(self, topic: str, messages: Iterable[Any], *, partition: int | None = None) -> BatchResult:
        """Write many records, given as (key, value) pairs or as values; return their metadata in the same order."""
        queues = self.sender.accumulator.topics.get(topic) or await self.sender.topic(topic)
        split = self.appender.split(queues, messages, partition)
        batches: list[Batch] = []
        for planned in split.planned:
            while True:
                try:
                    batches.append(self.sender.accumulator.add_batch(queues, *planned))
                    break
                except BufferFull as full:
                    await self._until_room(full.size_bytes)
        for batch in batches:
            await settled(batch)
        return batch_result(split, batches)

    async def flush(self) -> None:
        """Send everything now and wait until it is acknowledged. Raises the first error not reported yet."""
        await self.sender.flush()

    async def close(self) -> None:
        """Flush, then stop."""
        await self.sender.close()

    @property
    def is_closed(self) -> bool:
        return self.sender.is_closed

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _until_room(self, size_bytes: int) -> None:
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sender.accumulator.on_room(size_bytes, lambda: None if room.done() else room.set_result(None))
        await room


def batch_result(split: SplitRecords, batches: list[Batch]) -> BatchResult:
    """Return the metadata of all records, once their batches are acknowledged, or raise the first error."""
    split.settled(batches)
    errors = [batch.error for batch in batches if batch.error is not None]
    for batch in batches:
        batch.is_reported = True
    if errors:
        raise errors[0]
    return BatchResult(
        split.chosen, [(planned.partition, batch) for planned, batch in zip(split.planned, batches, strict=True)]
    )
