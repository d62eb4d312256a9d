"""The producer for blocking code.

A record is added to its batch in the caller's thread; the event loop is only woken when there is something to send.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from flymq.client.accumulator import BufferFull, TopicQueues
from flymq.client.aio.producer import AsyncProducer, batch_result
from flymq.client.appender import Headers
from flymq.client.deliveries import Batch, BatchResult, Delivery, OnDelivery, wait_for_batch
from flymq.client.records import RecordMetadata
from flymq.client.sync.loop import LoopThread


class Producer:
    """Writes records in batches. `send` returns as soon as the record is in a batch, `produce` when it is written.

    Thread-safe.
    """

    def __init__(self, loop: LoopThread, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer
        self._append = producer.appender.append
        self._accumulator = producer.sender.accumulator
        self._topics = self._accumulator.topics

    def send(
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
        """Add a record to a batch. Blocks only while the buffer is full. The delivery's result is its metadata."""
        queues = self._topics.get(topic) or self._queues(topic)
        while True:
            try:
                delivery = self._append(queues, value, key, partition, headers, timestamp)
                break
            except BufferFull as full:
                self._wait_for_room(full.size_bytes)
        if on_delivery is not None:
            delivery.add_callback(on_delivery)
        return delivery

    def produce(
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
        return self.send(topic, value, key, partition=partition, headers=headers, timestamp=timestamp).result()

    def produce_batch(self, topic: str, messages: Iterable[Any], *, partition: int | None = None) -> BatchResult:
        """Write many records, given as (key, value) pairs or as values; return their metadata in the same order."""
        queues = self._topics.get(topic) or self._queues(topic)
        split = self._producer.appender.split(queues, messages, partition)
        batches: list[Batch] = []
        for planned in split.planned:
            while True:
                try:
                    batches.append(self._accumulator.add_batch(queues, *planned))
                    break
                except BufferFull as full:
                    self._wait_for_room(full.size_bytes)
        for batch in batches:
            wait_for_batch(batch)
        return batch_result(split, batches)

    def flush(self) -> None:
        """Send everything now and wait until it is acknowledged. Raises the first error not reported yet."""
        self._loop.run(self._producer.flush())

    def close(self) -> None:
        """Flush, then stop."""
        self._loop.run(self._producer.close())

    @property
    def is_closed(self) -> bool:
        return self._producer.is_closed

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _queues(self, topic: str) -> TopicQueues:
        return self._loop.run(self._producer.sender.topic(topic))

    def _wait_for_room(self, size_bytes: int) -> None:
        gate = threading.Lock()
        gate.acquire()
        self._accumulator.on_room(size_bytes, gate.release)
        gate.acquire()
