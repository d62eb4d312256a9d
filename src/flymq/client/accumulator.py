"""Accumulate records into batches, and decide which batches can be sent now.

Each partition has at most one batch in flight. Records that arrive meanwhile accumulate behind it, so the batch size
adapts to the load: on an idle connection a record is sent at once, alone; the busier the broker, the larger the
batches. It also keeps the order within a partition through retries, and makes sequence numbers simple.

The user's threads add; the client's loop takes. One lock guards both, held for a few hundred nanoseconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from flymq.client.deliveries import Batch, Delivery
from flymq.model.errors import ClientClosed

RECORD_OVERHEAD_BYTES = 16
"""Approximate size of a record in a batch besides its key and value."""


class PartitionQueue:
    """The batches of one partition, the oldest first."""

    __slots__ = ("batches", "identity", "is_busy", "next_sequence", "open", "partition", "retry_at_s", "topic")

    def __init__(self, topic: TopicQueues, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None  # the last batch, while records can still be added
        self.is_busy = False  # the first batch is in flight
        self.retry_at_s = 0.0
        self.identity: Any = None  # the producer id under which this partition's sequence numbers count
        self.next_sequence = 0


class TopicQueues:
    """The partitions of one topic, and the round-robin position for records without a key."""

    __slots__ = ("batch_bytes_max", "name", "open_in_turn", "partition_count", "queues", "turn")

    def __init__(self, name: str, partition_count: int, batch_bytes_max: int) -> None:
        self.name = name
        self.batch_bytes_max = batch_bytes_max
        self.turn = -1
        self.open_in_turn: Batch | None = None  # the open batch of the current round-robin partition
        self.queues: list[PartitionQueue] = []
        self.partition_count = 0
        self.resize(partition_count)

    def resize(self, partition_count: int) -> None:
        """Set the number of partitions: more, or fewer after the topic was recreated. Surplus queues drain."""
        self.queues += [PartitionQueue(self, n) for n in range(len(self.queues), partition_count)]
        self.partition_count = partition_count


class Accumulator:
    """All batches that are open, queued or in flight, within a limit in bytes."""

    def __init__(
        self,
        *,
        batch_bytes_max: int,
        buffer_bytes_max: int,
        linger_s: float,
        now_s: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._buffer_bytes_max = buffer_bytes_max  # negative: closed
        self._linger_s = linger_s
        self._now_s = now_s
        self._wake = wake
        self._lock = threading.Lock()
        self._used_bytes = 0
        self.topics: dict[str, TopicQueues] = {}
        self._waiting: dict[PartitionQueue, None] = {}  # queues with a batch that is not in flight; an ordered set
        self._pending: dict[Batch, None] = {}  # batches without an outcome yet; an ordered set
        self._flushes = 0
        self._room_waiters: list[Callable[[], None]] = []

    # --- the user's side --------------------------------------------------------------------------------------------

    def add(self, topic: TopicQueues, partition: int | None, record: tuple[Any, ...], size: int) -> Delivery:
        """Add a record to a batch. Raises `BufferFull`.

        Without a partition, records stick to one until its open batch is full, then go to the next: round robin, batch
        by batch (sticky partitioning).
        """
        must_wake = False
        with self._lock:
            used_bytes = self._used_bytes + size
            if used_bytes > self._buffer_bytes_max:
                self._check_room(size)
            batch = topic.open_in_turn if partition is None else topic.queues[partition].open
            if batch is None or batch.size_bytes + size > topic.batch_bytes_max:
                batch, must_wake = self._open(topic, partition, None)
            records = batch.records
            delivery = Delivery(batch, len(records))
            records.append(record)
            batch.size_bytes += size
            self._used_bytes = used_bytes
        if must_wake:
            self._wake()
        return delivery

    def add_batch(self, topic: TopicQueues, partition: int | None, records: list[Any], size: int) -> Batch:
        """Queue records as a separate batch, behind those queued already. Raises `BufferFull`."""
        with self._lock:
            if self._used_bytes + size > self._buffer_bytes_max:
                self._check_room(size)
            batch, must_wake = self._open(topic, partition, records)
            batch.size_bytes = size
            self._used_bytes += size
        if must_wake:
            self._wake()
        return batch

    def on_room(self, size: int, callback: Callable[[], None]) -> None:
        """Call back when the buffer has room for `size` bytes; at once if it has."""
        with self._lock:
            if self._used_bytes and self._used_bytes + size > self._buffer_bytes_max >= 0:
                self._room_waiters.append(callback)
                return
        callback()

    def _check_room(self, size: int) -> None:
        """A record larger than the whole buffer is accepted when the buffer is empty."""
        if self._buffer_bytes_max < 0:
            raise ClientClosed
        if self._used_bytes:
            raise BufferFull(size)

    def _open(self, topic: TopicQueues, partition: int | None, records: list[Any] | None) -> tuple[Batch, bool]:
        """Start a batch; return whether the client must be woken. A batch given with its records is closed at once."""
        if partition is None:
            queue = topic.queues[(topic.turn + 1) % topic.partition_count]
            topic.turn = queue.partition
        else:
            queue = topic.queues[partition]
        batch = Batch(topic.name, queue.partition, self._now_s(), records)
        queue.batches.append(batch)
        queue.open = batch if records is None else None
        if queue.partition == topic.turn:
            topic.open_in_turn = queue.open
        self._pending[batch] = None
        if not queue.is_busy:
            self._waiting[queue] = None
        return batch, not queue.is_busy

    # --- the client's side ------------------------------------------------------------------------------------------

    def set_topic(self, name: str, partition_count: int, message_bytes_max: int) -> TopicQueues:
        """Add a topic, or update its partition count or size limit."""
        batch_bytes_max = min(self._batch_bytes_max, message_bytes_max)
        with self._lock:
            topic = self.topics.get(name)
            if topic is None:
                topic = self.topics[name] = TopicQueues(name, partition_count, batch_bytes_max)
            topic.batch_bytes_max = batch_bytes_max
            topic.resize(partition_count)
        return topic

    def take_ready(self, now_s: float) -> tuple[list[tuple[PartitionQueue, Batch]], float | None]:
        """Return the batches to send now, and when to check again for those that linger or wait for a retry."""
        ready: list[tuple[PartitionQueue, Batch]] = []
        next_s: float | None = None
        with self._lock:
            for queue in self._waiting:
                due_s = self._due_s(queue)
                if due_s <= now_s:
                    queue.is_busy = True
                    ready.append((queue, queue.batches[0]))
                elif next_s is None or due_s < next_s:
                    next_s = due_s
            for queue, batch in ready:
                del self._waiting[queue]
                if queue.open is batch:
                    queue.open = None
                    if queue.topic.open_in_turn is batch:
                        queue.topic.open_in_turn = None
                batch.count = len(batch.records)
        return ready, next_s

    def put_back(self, queue: PartitionQueue, retry_at_s: float) -> None:
        """Queue the batch that was in flight for a retry, still before all others of its partition."""
        with self._lock:
            queue.is_busy = False
            queue.retry_at_s = retry_at_s
            self._waiting[queue] = None

    def finish(self, queue: PartitionQueue, batch: Batch) -> None:
        """Remove a batch whose outcome is known, and free its buffer space. Settle it after this."""
        with self._lock:
            assert queue.batches[0] is batch
            queue.batches.popleft()
            queue.is_busy = False
            queue.retry_at_s = 0.0
            if queue.batches:
                self._waiting[queue] = None
            self._pending.pop(batch, None)
            self._used_bytes -= batch.size_bytes
            waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            waiter()

    def pending(self) -> list[Batch]:
        """Return the batches without an outcome yet, oldest first."""
        with self._lock:
            return list(self._pending)

    def waiting(self) -> list[tuple[PartitionQueue, Batch]]:
        """Return the first batch of each partition that has none in flight."""
        with self._lock:
            return [(queue, queue.batches[0]) for queue in self._waiting]

    def reset_sequences(self) -> None:
        """Restart sequence numbers in every partition under the producer's next identity. Batches in flight keep
        theirs, others get new ones."""
        with self._lock:
            for topic in self.topics.values():
                for queue in topic.queues:
                    queue.identity = None
                    if queue.batches and not queue.is_busy:
                        queue.batches[0].encoded = None

    def close(self) -> None:
        """Accept no more records. Callers that wait for room wake up, and their next attempt raises."""
        with self._lock:
            self._buffer_bytes_max = -1
            waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            waiter()

    def begin_flush(self) -> None:
        """Ignore the linger time until `end_flush`."""
        with self._lock:
            self._flushes += 1

    def end_flush(self) -> None:
        with self._lock:
            self._flushes -= 1

    def _due_s(self, queue: PartitionQueue) -> float:
        if queue.retry_at_s:
            return queue.retry_at_s
        batch = queue.batches[0]
        is_full = queue.open is not batch
        if is_full or self._flushes or not self._linger_s:
            return 0.0
        return batch.opened_s + self._linger_s


class BufferFull(Exception):
    """The buffer has no room for this many bytes; wait with `on_room` and retry. Never reaches users."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.size_bytes = size_bytes
