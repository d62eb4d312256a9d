"""Long poll: a fetch that waits until enough is there or its time is over. No task; a future, a timer, a callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from flymq.broker.partition import Partition, PartitionRead
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition

T = TypeVar("T")
MaybeLater: TypeAlias = "T | asyncio.Future[T]"
"""A result that is there already, as nearly all are, or will be."""


@dataclass(slots=True)
class FetchFrom:
    """Where to read one partition."""

    name: TopicPartition
    offset: int
    bytes_max: int


@dataclass(slots=True)
class FetchQuery:
    """What a reader wants."""

    partitions: Sequence[FetchFrom]
    bytes_min: int = 1
    bytes_max: int = 16 << 20
    wait_ms_max: int = 0
    isolation: Isolation = Isolation.READ_COMMITTED


Find = Callable[[TopicPartition], Partition]


class Fetches:
    """Reads on behalf of clients, and those of them that wait."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._waiting: set[_WaitingFetch] = set()
        self._may_wait = True

    def fetch(self, query: FetchQuery) -> MaybeLater[list[PartitionRead]]:
        """Read what is there; when that is too little, wait for more."""
        reads = _read(self._find, query)
        if query.wait_ms_max <= 0 or _is_enough(reads, query) or not self._may_wait:
            return reads
        waiting = _WaitingFetch(self._find, query)
        self._waiting.add(waiting)
        waiting.future.add_done_callback(lambda _: self._waiting.discard(waiting))
        return waiting.future

    def stop_waiting(self) -> None:
        """Answer everybody who waits with what is there, and let nobody wait any more: the broker is closing."""
        self._may_wait = False
        for waiting in list(self._waiting):
            waiting.finish()


def _read(find: Find, query: FetchQuery) -> list[PartitionRead]:
    """Read each partition, in order, as far as the bytes of the whole query go. The first batch always fits."""
    reads = []
    left = query.bytes_max
    for wanted in query.partitions:
        try:
            read = find(wanted.name).read(
                wanted.offset, bytes_max=max(0, min(wanted.bytes_max, left)), isolation=query.isolation
            )
        except FlyMQError as error:
            read = PartitionRead(wanted.name, error=error)
        if read.slice is not None and left < query.bytes_max and read.length > left:
            read.slice = None  # at least one batch is read; but not from every partition when the answer is full
        left -= read.length
        reads.append(read)
    return reads


def _is_enough(reads: list[PartitionRead], query: FetchQuery) -> bool:
    return sum(read.length for read in reads) >= query.bytes_min or any(read.error is not None for read in reads)


class _WaitingFetch:
    """One fetch that waits. Cancelling its future ends it."""

    def __init__(self, find: Find, query: FetchQuery) -> None:
        self._find = find
        self._query = query
        self._loop = asyncio.get_running_loop()
        self._trying = False
        self.future: asyncio.Future[list[PartitionRead]] = self._loop.create_future()
        self.future.add_done_callback(self._ended)
        self._timer = self._loop.call_later(query.wait_ms_max / 1000, self.finish)
        self._wait()

    def _wait(self) -> None:
        for wanted in self._query.partitions:
            self._find(wanted.name).wait(self._wake)

    def _wake(self) -> None:
        # Not at once: a burst of appends in one turn of the loop is then one read, and the producer goes first.
        if not self._trying:
            self._trying = True
            self._loop.call_soon(self._try)

    def _try(self) -> None:
        self._trying = False
        if self.future.done():
            return
        reads = _read(self._find, self._query)
        if _is_enough(reads, self._query):
            self.future.set_result(reads)
        else:
            self._wait()

    def finish(self) -> None:
        if not self.future.done():
            self.future.set_result(_read(self._find, self._query))

    def _ended(self, _future: asyncio.Future[list[PartitionRead]]) -> None:
        self._timer.cancel()
        for wanted in self._query.partitions:
            try:
                self._find(wanted.name).stop_waiting(self._wake)
            except FlyMQError:
                continue  # the topic was deleted meanwhile
