"""Long polling: a fetch waits for enough data or for its timeout.

A fetch of a few partitions has a timer and callbacks, no task. One of many partitions is read in time slices, and when
it is woken, only those that changed are read again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from flymq.broker.replicas.partition import NO_EPOCH, Partition, PartitionRead, View
from flymq.host.prompt_future import PromptFuture, R
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
    from_followers: bool = False
    """Whether this broker answers for partitions that it follows, too."""


WIDE = 100
"""A fetch of more partitions is read in time slices."""

Find = Callable[[TopicPartition], Partition]
Answer = Callable[[list[PartitionRead]], R]
"""Builds the response to a fetch from its reads, when it is complete."""


class Fetches:
    """Reads for clients, and keeps the fetches that wait."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._waiting: dict[PendingFetch[Any], None] = {}
        self._woken: deque[WaitingFetch[Any]] = deque()
        self._is_trying = False
        self._may_wait = True

    def read(self, query: FetchQuery) -> list[PartitionRead] | None:
        """Read what is available; None if the reader should `wait`: it is not enough, or it takes long to read."""
        if len(query.partitions) > WIDE:
            return None
        reads = _read(self._find, query)
        if query.wait_ms_max <= 0 or _is_enough(reads, query) or not self._may_wait:
            return reads
        return None

    def wait(self, query: FetchQuery, answer: Answer[R]) -> PendingFetch[R]:
        """Wait for more than is available now."""
        waiting: PendingFetch[R]
        if len(query.partitions) > WIDE:
            waiting = WideFetch(self._find, query, answer)
            if not self._may_wait:
                waiting.finish()
        else:
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
    for wanted in query.partitions:
        read = _read_one(find, query, wanted, left)
        if read.slice is not None:
            left -= read.slice.length
        reads.append(read)
    return reads


def _read_one(find: Find, query: FetchQuery, wanted: FetchFrom, left: int) -> PartitionRead:
    """Read one partition, with `left` bytes until the response is full."""
    try:
        bytes_max = wanted.bytes_max if wanted.bytes_max < left else left
        partition = find(wanted.name)
        from_follower = query.from_followers
        if wanted.leader_epoch != NO_EPOCH:
            if from_follower:
                partition.check_epoch(wanted.leader_epoch)
            else:
                partition.check_leads(wanted.leader_epoch)
        read = partition.read(
            wanted.offset, bytes_max=bytes_max if bytes_max > 0 else 0, view=query.view, from_follower=from_follower
        )
    except FlyMQError as error:
        return PartitionRead(wanted.name, error=error.with_traceback(None))  # whose frames take kilobytes
    if read.slice is not None and left < query.bytes_max and read.slice.length > left:
        read.slice = None  # at least one batch is read, but not from every partition when the response is full
    return read


def _is_enough(reads: list[PartitionRead], query: FetchQuery) -> bool:
    length = 0
    for read in reads:
        length += read.length
        if length >= query.bytes_min or read.error is not None:
            return True
    return False


class PendingFetch(PromptFuture[R]):
    """A fetch that waits: for enough records, or for its timeout."""

    __slots__ = ()

    def finish(self) -> None:
        """Complete with what is available."""
        raise NotImplementedError


class WaitingFetch(PendingFetch[R]):
    """A waiting fetch of a few partitions."""

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
        if not self._is_done:
            self.set_result(self._answer(_read(self._find, self._query)))

    def _end(self) -> None:
        self._timer.cancel()
        for wanted in self._query.partitions:
            with suppress(FlyMQError):  # the topic was deleted meanwhile
                self._find(wanted.name).stop_waiting(self._wake)
        super()._end()


class WideFetch(PendingFetch[R]):
    """A fetch of many partitions."""

    __slots__ = (
        "_answer",
        "_changed",
        "_failed",
        "_find",
        "_is_over",
        "_left",
        "_query",
        "_reads",
        "_something",
        "_task",
        "_waits",
    )

    def __init__(self, find: Find, query: FetchQuery, answer: Answer[R]) -> None:
        super().__init__()
        self._find = find
        self._query = query
        self._answer = answer
        self._is_over = query.wait_ms_max <= 0
        self._left = query.bytes_max
        self._failed = False  # a partition has an error
        self._reads: list[PartitionRead] = []  # as many as were read so far, in the order of the query
        self._changed: dict[int, None] = dict.fromkeys(range(len(query.partitions)))  # positions in the query
        self._something = asyncio.Event()
        self._waits: dict[int, tuple[Partition, Callable[[], None]]] = {}
        self._task: asyncio.Task[None] | None = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        timer = asyncio.get_running_loop().call_later(self._query.wait_ms_max / 1000, self.finish)
        try:
            await self._read_changed()
            while not self._is_over and not self._is_enough:
                await self._something.wait()
                self._something.clear()
                await self._read_changed()
        finally:
            timer.cancel()
        self.set_result(self._answer(self._reads))

    async def _read_changed(self) -> None:
        """Read what changed so far. What changes meanwhile has set the event: it is read if it is needed."""
        slice_ = TimeSlice()
        changed, self._changed = self._changed, {}
        for at in changed:
            self._read_at(at)
            await slice_.yield_if_over()

    @property
    def _is_enough(self) -> bool:
        return self._failed or self._query.bytes_max - self._left >= self._query.bytes_min

    def _read_at(self, at: int) -> None:
        wanted, is_first = self._query.partitions[at], at == len(self._reads)
        if not self._is_over:
            self._wait(at, wanted)  # before it is read: nothing that is appended meanwhile is missed
        if not is_first and (before := self._reads[at].slice) is not None:
            self._left += before.length
        read = _read_one(self._find, self._query, wanted, self._left)
        if is_first:
            self._reads.append(read)
        else:
            self._reads[at] = read
        if read.slice is not None:
            self._left -= read.slice.length
        elif read.error is not None:
            self._failed = True

    def _wait(self, at: int, wanted: FetchFrom) -> None:
        with suppress(FlyMQError):  # it is read as an error
            partition = self._find(wanted.name)
            wake = partial(self._wake, at)
            partition.wait(wake)
            self._waits[at] = partition, wake

    def _wake(self, at: int) -> None:
        self._changed[at] = None
        self._something.set()

    def finish(self) -> None:
        self._is_over = True
        self._something.set()

    def _end(self) -> None:
        # Not kept: a cancelled task refers to its frame, which refers to this fetch, and would hold it until the next
        # full collection.
        task, self._task = self._task, None
        assert task is not None, "it ends once"
        task.cancel()
        for partition, wake in self._waits.values():
            partition.stop_waiting(wake)
        self._waits.clear()
        super()._end()
