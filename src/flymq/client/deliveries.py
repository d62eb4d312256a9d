"""The outcome of a record that was sent: known for its whole batch at once.

A `Delivery` is a cheap future: a batch and an index into it. All deliveries of a batch have its outcome, and only one
that is waited for creates a lock or an asyncio future.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, overload

from flymq.client.records import NO_TIMESTAMP, RecordMetadata
from flymq.model.errors import FlyMQError, RequestTimedOut

OnDelivery = Callable[[RecordMetadata | None, FlyMQError | None], None]
"""Called with the metadata of the record, or with the error why it was not written."""

logger = logging.getLogger(__name__)

_settling = threading.Lock()  # guards the race between settling a batch and starting to wait for it


def _new_lock() -> None:
    """The thread that held the lock at the time of a fork does not exist in the child."""
    global _settling
    _settling = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


class Batch:
    """Records of one partition on their way to the broker, and finally their base offset or error."""

    __slots__ = (
        "_waiters",
        "ambiguous",
        "attempts",
        "base_offset",
        "count",
        "encoded",
        "error",
        "identity",
        "is_reported",
        "is_settled",
        "last_error",
        "opened_s",
        "partition",
        "records",
        "size_bytes",
        "timestamp",
        "topic",
    )

    def __init__(self, topic: str, partition: int, opened_s: float, records: list[Any] | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.opened_s = opened_s
        self.records: list[Any] = [] if records is None else records
        self.size_bytes = 0
        self.count = 0  # of records, fixed when the batch is sent
        self.encoded: bytearray | None = None
        self.attempts = 0
        self.identity: object = None  # of the producer, as written into `encoded`
        self.ambiguous = False  # whether an attempt without an answer may have been written
        self.base_offset = -1
        self.timestamp = NO_TIMESTAMP
        self.error: FlyMQError | None = None
        self.last_error: FlyMQError | None = None  # of an attempt that was followed by another
        self.is_settled = False
        self.is_reported = False  # whether the user has seen the outcome
        self._waiters: list[Callable[[], None]] = []

    def succeed(self, base_offset: int, timestamp: int) -> None:
        self.base_offset = base_offset
        self.timestamp = timestamp
        self._settle()

    def fail(self, error: FlyMQError) -> None:
        self.error = error
        self._settle()

    def when_settled(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` when the outcome is known: now if it is, else from the client's thread."""
        with _settling:
            if not self.is_settled:
                self._waiters.append(waiter)
                return
        waiter()

    def metadata(self, index: int) -> RecordMetadata:
        """Return the metadata of one record, or raise the error of the batch."""
        assert self.is_settled
        self.is_reported = True
        if self.error is not None:
            raise self.error
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(offset, self.topic, self.partition, self.timestamp)

    def _settle(self) -> None:
        assert not self.is_settled
        self.records = []
        self.encoded = None
        with _settling:
            self.is_settled = True
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()


class Delivery:
    """The outcome of one record. Wait with `result()`, or `await` it."""

    __slots__ = ("batch", "index")

    def __init__(self, batch: Batch, index: int) -> None:
        self.batch = batch
        self.index = index

    def done(self) -> bool:
        return self.batch.is_settled

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Block until the broker has acknowledged. Not for use in an event loop: `await` the delivery there."""
        wait_for_batch(self.batch, timeout_s)
        return self.batch.metadata(self.index)

    def exception(self, timeout_s: float | None = None) -> FlyMQError | None:
        wait_for_batch(self.batch, timeout_s)
        self.batch.is_reported = True
        return self.batch.error

    def add_callback(self, callback: OnDelivery) -> None:
        """Call back when the outcome is known, from the client's thread: do not block there."""
        batch, index = self.batch, self.index

        def report() -> None:
            batch.is_reported = True
            try:
                callback(None if batch.error else batch.metadata(index), batch.error)
            except Exception:  # a failing callback must not keep other records from being settled
                logger.exception("a delivery callback failed")

        batch.when_settled(report)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from settled(self.batch).__await__()
        return self.batch.metadata(self.index)

    def __repr__(self) -> str:
        state = "done" if self.batch.is_settled else "pending"
        return f"<Delivery to {self.batch.topic}-{self.batch.partition}, {state}>"


class BatchResult(Sequence[RecordMetadata]):
    """The metadata of the records of a `produce_batch` call, in their order. Computed on access."""

    __slots__ = ("_batches", "_chosen", "_placed")

    def __init__(self, chosen: Sequence[int | None], batches: Sequence[tuple[int | None, Batch]]) -> None:
        self._chosen = chosen  # the partition requested for each record
        self._batches = batches  # those of one partition in the order of their records
        self._placed: list[tuple[Batch, int]] | None = None

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> RecordMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordMetadata]: ...
    def __getitem__(self, index: int | slice) -> RecordMetadata | list[RecordMetadata]:
        if self._placed is None:
            self._placed = self._place()
        if isinstance(index, slice):
            return [batch.metadata(at) for batch, at in self._placed[index]]
        batch, at = self._placed[index]
        return batch.metadata(at)

    def __repr__(self) -> str:
        return f"<BatchResult of {len(self)} records in {len(self._batches)} batches>"

    def _place(self) -> list[tuple[Batch, int]]:
        """Find the batch of each record, and its index there."""
        places: dict[int | None, list[tuple[Batch, int]]] = {}
        for partition, batch in self._batches:
            places.setdefault(partition, []).extend((batch, at) for at in range(batch.count))
        of_partition = {partition: iter(found) for partition, found in places.items()}
        return [next(of_partition[partition]) for partition in self._chosen]


def wait_for_batch(batch: Batch, timeout_s: float | None = None) -> None:
    """Block this thread until the batch has an outcome."""
    if batch.is_settled:
        return
    gate = threading.Lock()
    gate.acquire()
    batch.when_settled(gate.release)
    if not gate.acquire(timeout=-1 if timeout_s is None else timeout_s):
        raise RequestTimedOut(f"the batch for {batch.topic}-{batch.partition} was not acknowledged in {timeout_s} s")


async def settled(batch: Batch) -> None:
    """Wait in an event loop until the batch has an outcome."""
    if batch.is_settled:
        return
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    thread = threading.get_ident()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def report() -> None:
        if threading.get_ident() == thread:
            wake()
        else:
            loop.call_soon_threadsafe(wake)

    batch.when_settled(report)
    await future
