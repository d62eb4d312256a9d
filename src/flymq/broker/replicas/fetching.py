"""Long polling: a fetch waits for enough data or for its timeout. A timer and callbacks, no task."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flymq.broker.prompt_future import PromptFuture, R
from flymq.broker.replicas.partition import NO_EPOCH, Partition, PartitionRead, View
from flymq.host.time_slices import TimeSlice
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition


@dataclass(slots=True)
class FetchFrom:
    """The start offset in one partition."""

    name: TopicPartition
    offset: int
    bytes_max: int
    leader_epoch: int = NO_EPOCH
    """The leader epoch that the reader knows; the read fails if it is not the current one."""


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
        self._woken: deque[WaitingFetch[Any]] = deque()
        self._is_trying = False
        self._may_wait = True

    def read(self, query: FetchQuery) -> list[PartitionRead] | None:
        """Read what is available; None if that is not enough and the reader should `wait`."""
        reads = _read(self._find, query)
        if query.wait_ms_max <= 0 or _is_enough(reads, query) or not self._may_wait:
            return reads
        return None

    def wait(self, query: FetchQuery, answer: Answer[R]) -> WaitingFetch[R]:
        """Wait for more than is available now."""
        waiting = WaitingFetch(self._find, query, answer, self._wake)
        self._waiting[waiting] = None
        waiting.add_done_callback(lambda done: self._waiting.pop(done, None))
        return waiting

    def _wake(self, waiting: WaitingFetch[Any]) -> None:
        # Not immediately: several appends in one loop iteration are then one read, and the producer is served first.
        self._woken.append(waiting)
        if not self._is_trying:
            self._is_trying = True
            asyncio.get_running_loop().call_soon(self._try_woken)

    def _try_woken(self) -> None:
        """Read for those that were woken, in the order in which they were, for as long as a time slice lasts.

        A thousand readers can wait for the same partition: others are served between them.
        """
        slice_ = TimeSlice()
        try:
            while self._woken and not slice_.is_over:
                self._woken.popleft().try_again()
        finally:
            self._is_trying = bool(self._woken)
            if self._woken:
                asyncio.get_running_loop().call_soon(self._try_woken)

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
            bytes_max = wanted.bytes_max if wanted.bytes_max < left else left
            partition = find(wanted.name)
            if wanted.leader_epoch != NO_EPOCH:
                partition.check_leads(wanted.leader_epoch)
            read = partition.read(wanted.offset, bytes_max=bytes_max if bytes_max > 0 else 0, view=view)
        except FlyMQError as error:
            read = PartitionRead(wanted.name, error=error)
        if read.slice is not None:
            if left < query.bytes_max and read.slice.length > left:
                read.slice = None  # at least one batch is read, but not from every partition when the response is full
            else:
                left -= read.slice.length
        reads.append(read)
    return reads


def _is_enough(reads: list[PartitionRead], query: FetchQuery) -> bool:
    length = 0
    for read in reads:
        length += read.length
        if length >= query.bytes_min or read.error is not None:
            return True
    return False


class WaitingFetch(PromptFuture[R]):
    """One waiting fetch: for enough records, or for its timeout."""

    __slots__ = ("_answer", "_find", "_query", "_timer", "_to_be_tried", "_trying")

    def __init__(
        self, find: Find, query: FetchQuery, answer: Answer[R], to_be_tried: Callable[[WaitingFetch[R]], None]
    ) -> None:
        super().__init__()
        self._find = find
        self._query = query
        self._answer = answer
        self._to_be_tried = to_be_tried
        self._trying = False
        self._timer = asyncio.get_running_loop().call_later(query.wait_ms_max / 1000, self.finish)
        self._wait()

    # --- wait

    def _wait(self) -> None:
        for wanted in self._query.partitions:
            self._find(wanted.name).wait(self._wake)

    def _wake(self) -> None:
        if not self._trying:
            self._trying = True
            self._to_be_tried(self)

    def try_again(self) -> None:
        """There may be more records: complete if they are enough."""
        self._trying = False
        if self._is_done:
            return
        reads = _read(self._find, self._query)
        if _is_enough(reads, self._query):
            self.set_result(self._answer(reads))
        else:
            self._wait()

    def finish(self) -> None:
        """Complete with what is available."""
        if not self._is_done:
            self.set_result(self._answer(_read(self._find, self._query)))

    def _end(self) -> None:
        self._timer.cancel()
        for wanted in self._query.partitions:
            with suppress(FlyMQError):  # the topic was deleted meanwhile
                self._find(wanted.name).stop_waiting(self._wake)
        super()._end()
