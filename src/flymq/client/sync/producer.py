"""Write records from code without an event loop.

A record goes into its batch in the caller's own thread; the loop is only woken when there is something new to send.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from flymq.client.accumulator import BufferFull, TopicQueues
from flymq.client.aio.producer import AsyncProducer, batch_result
from flymq.client.deliveries import Batch, BatchResult, Delivery, OnDelivery, wait_for_batch
from flymq.client.intake import Headers
from flymq.client.records import RecordMetadata
from flymq.client.sync.loop import LoopThread


class Producer:
    """Writes records in batches. `send` returns as soon as the record is in a batch, `produce` when it is written.

    Threads may share one.
    """

    def __init__(self, loop: LoopThread, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer
        self._put = producer.intake.put
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
        """Put a record into a batch. Blocks only while the buffer is full. Ask the delivery for its place."""
        queues = self._topics.get(topic) or self._queues(topic)
        while True:
            try:
                delivery = self._put(queues, value, key, partition, headers, timestamp)
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
        """Write one record and return its place."""
        return self.send(topic, value, key, partition=partition, headers=headers, timestamp=timestamp).result()

    def produce_batch(self, topic: str, messages: Iterable[Any], *, partition: int | None = None) -> BatchResult:
        """Write many records, given as (key, value) pairs or as values, and return their places in the same order."""
        queues = self._topics.get(topic) or self._queues(topic)
        shares = self._producer.intake.share_out(queues, messages, partition)
        batches: list[Batch] = []
        for piece in shares.pieces:
            while True:
                try:
                    batches.append(
                        self._accumulator.add_batch(queues, piece.partition, piece.records, piece.size_bytes)
                    )
                    break
                except BufferFull as full:
                    self._wait_for_room(full.size_bytes)
        for batch in batches:
            wait_for_batch(batch)
        return batch_result(shares, batches)

    def flush(self) -> None:
        """Send everything now and wait until it is written. Raises the first failure nobody has seen yet."""
        self._loop.run(self._producer.flush())

    def close(self) -> None:
        """Write what is left, then stop."""
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
