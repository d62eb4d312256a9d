"""Long polling: a fetch waits for enough data or for its timeout. A timer and callbacks, no task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from flymq.broker.replicas.partition import Partition, PartitionRead, View
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition

R = TypeVar("R")


@dataclass(slots=True)
class FetchFrom:
    """The start offset in one partition."""

    name: TopicPartition
    offset: int
    bytes_max: int


@dataclass(slots=True)
class FetchQuery:
    """The partitions, sizes and wait time of a fetch."""

    partitions: Sequence[FetchFrom]
    bytes_min: int = 1
    bytes_max: int = 16 << 20
    wait_ms_max: int = 0
    view: View = View.COMMITTED


Find = Callable[[TopicPartition], Partition]
Answer = Callable[[list[PartitionRead]], R]
"""Builds the response to a fetch from its reads, when it is complete."""


class Fetches:
    """Reads for clients, and keeps the fetches that wait."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._waiting: dict[WaitingFetch[Any], None] = {}
        self._may_wait = True

    def fetch(self, query: FetchQuery, answer: Answer[R]) -> R | WaitingFetch[R]:
        """Read what is available; if that is not enough, wait for more."""
        reads = _read(self._find, query)
        if query.wait_ms_max <= 0 or _is_enough(reads, query) or not self._may_wait:
            return answer(reads)
        waiting = WaitingFetch(self._find, query, answer)
        self._waiting[waiting] = None
        waiting.add_done_callback(lambda done: self._waiting.pop(done, None))
        return waiting

    @property
    def may_wait(self) -> bool:
        """False once the broker is closing."""
        return self._may_wait

    def stop_waiting(self) -> None:
        """Complete all waiting fetches with what is available, and let none wait any more: the broker is closing."""
        self._may_wait = False
        for waiting in list(self._waiting):
            waiting.finish()


def _read(find: Find, query: FetchQuery) -> list[PartitionRead]:
    """Read each partition, in order, up to the limits of the fetch. The first batch is always returned."""
    reads = []
    left = query.bytes_max
    view = query.view
    for wanted in query.partitions:
        try:
            read = find(wanted.name).read(wanted.offset, bytes_max=max(0, min(wanted.bytes_max, left)), view=view)
        except FlyMQError as error:
            read = PartitionRead(wanted.name, error=error)
        if read.slice is not None and left < query.bytes_max and read.length > left:
            read.slice = None  # at least one batch is read, but not from every partition when the response is full
        left -= read.length
        reads.append(read)
    return reads


def _is_enough(reads: list[PartitionRead], query: FetchQuery) -> bool:
    length = 0
    for read in reads:
        length += read.length
        if length >= query.bytes_min or read.error is not None:
            return True
    return False


class WaitingFetch(Generic[R]):
    """One waiting fetch. Like a future, but its callbacks run immediately when it is done.

    The event loop would run them in its next iteration, after polling all sockets, which adds latency for a waiting
    consumer.
    """

    def __init__(self, find: Find, query: FetchQuery, answer: Answer[R]) -> None:
        self._find = find
        self._query = query
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._trying = False
        self._is_done = False
        self._is_cancelled = False
        self._result: R | None = None
        self._callbacks: list[Callable[[WaitingFetch[R]], None]] = []
        self._timer = self._loop.call_later(query.wait_ms_max / 1000, self.finish)
        self._wait()

    # --- as a future

    def add_done_callback(self, callback: Callable[[WaitingFetch[R]], None]) -> None:
        assert not self._is_done
        self._callbacks.append(callback)

    def cancel(self) -> None:
        """Stop waiting; the response is not needed."""
        if not self._is_done:
            self._is_cancelled = True
            self._end()

    def cancelled(self) -> bool:
        return self._is_cancelled

    def exception(self) -> None:
        """Always None: each read has its own error."""

    def result(self) -> R:
        assert self._is_done and not self._is_cancelled
        return self._result  # type: ignore[return-value]

    def __await__(self) -> Generator[None, None, R]:
        done = self._loop.create_future()
        self.add_done_callback(lambda _: None if done.done() else done.set_result(None))
        try:
            yield from done
        finally:
            self.cancel()
        if self._is_cancelled:
            raise asyncio.CancelledError
        return self.result()

    # --- wait

    def _wait(self) -> None:
        for wanted in self._query.partitions:
            self._find(wanted.name).wait(self._wake)

    def _wake(self) -> None:
        # Not immediately: several appends in one loop iteration are then one read, and the producer is served first.
        if not self._trying:
            self._trying = True
            self._loop.call_soon(self._try)

    def _try(self) -> None:
        self._trying = False
        if self._is_done:
            return
        reads = _read(self._find, self._query)
        if _is_enough(reads, self._query):
            self._finish(reads)
        else:
            self._wait()

    def finish(self) -> None:
        """Complete with what is available."""
        if not self._is_done:
            self._finish(_read(self._find, self._query))

    def _finish(self, reads: list[PartitionRead]) -> None:
        self._result = self._answer(reads)
        self._end()

    def _end(self) -> None:
        self._is_done = True
        self._timer.cancel()
        for wanted in self._query.partitions:
            with suppress(FlyMQError):  # the topic was deleted meanwhile
                self._find(wanted.name).stop_waiting(self._wake)
        for callback in self._callbacks:
            callback(self)
