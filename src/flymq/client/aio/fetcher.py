"""Prefetch: keep some records of every partition in memory before the user polls.

Each partition is in at most one FETCH in flight. Several may wait at a broker at once, so an empty partition is
requested at once, whatever the others do.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypeAlias, cast

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.connection import Connection
from flymq.client.aio.offsets import list_offsets
from flymq.client.cursor import Cursor, FetchedRun
from flymq.client.decoding import unreadable_batch
from flymq.client.settings import ConsumerConfig
from flymq.host.tasks import Tasks
from flymq.model.errors import FlyMQError, OffsetOutOfRange, RequestTimedOut
from flymq.model.names import TopicPartition
from flymq.record.reading import end_offset, intact_part
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.records import (
    AT_EARLIEST,
    AT_LATEST,
    Fetch,
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
)

FETCHES_PER_LEADER_MAX = 8

START_POSITIONS = {"earliest": AT_EARLIEST, "latest": AT_LATEST}

Asked: TypeAlias = tuple[Cursor, int]
"""A cursor and its version at the time of the request."""


class Fetcher:
    """Fetches for a set of cursors; `take` returns what was fetched, fairly among partitions."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(self._task_failed)
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._ready: deque[Cursor] = deque()  # cursors with fetched runs or an error, each once
        self._arrival = asyncio.Event()
        self._waiting_at: Counter[int] = Counter()  # fetches in flight, by leader
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def cursors(self) -> dict[TopicPartition, Cursor]:
        return self._cursors

    def add(self, cursors: Iterable[Cursor]) -> None:
        for cursor in cursors:
            self._cursors[cursor.name] = cursor
        self.pump()

    def remove(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            cursor = self._cursors.pop(name, None)
            if cursor is not None:
                cursor.seek(cursor.committable)

    def seek(self, cursor: Cursor, offset: int) -> None:
        cursor.seek(offset)
        self.pump()

    def resume(self, cursor: Cursor) -> None:
        cursor.is_paused = False
        self._mark_ready(cursor)
        self.pump()

    def take(self) -> tuple[Cursor, FetchedRun] | None:
        """Return the next fetched run of any partition, or None. Raises the error of a partition that failed."""
        while self._ready:
            cursor = self._ready.popleft()
            cursor.is_ready = False
            if self._cursors.get(cursor.name) is not cursor or cursor.is_paused:
                continue
            if cursor.runs:
                run = cursor.take_run()
                self._mark_ready(cursor)
                self.pump()
                return cursor, run
            if cursor.error is not None:
                error, cursor.error = cursor.error, None
                cursor.retry_at_s = 0.0
                raise error
        return None

    def put_back(self, cursor: Cursor, run: FetchedRun) -> None:
        cursor.put_back(run)
        self._mark_ready(cursor)

    async def wait(self) -> None:
        """Return when something may have been fetched."""
        self.pump()
        self._arrival.clear()
        if not self._ready:
            await self._arrival.wait()

    def wake(self) -> None:
        self._arrival.set()

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._cursors.clear()
        self._arrival.set()
        await self._tasks.close()

    # ----------------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Fetch every partition that runs low, unless the prefetch buffer is full."""
        buffered_bytes = sum(cursor.buffered_bytes for cursor in self._cursors.values())
        if self._is_closed or buffered_bytes >= self._config.prefetch_total_bytes:
            return
        now_s = self._loop.time()
        next_s: float | None = None
        by_leader: dict[int, list[Cursor]] = {}
        for cursor in self._cursors.values():
            if cursor.is_fetching or cursor.is_paused or cursor.error is not None:
                continue
            if cursor.buffered_bytes >= self._config.prefetch_bytes:
                continue
            if cursor.retry_at_s > now_s:
                next_s = cursor.retry_at_s if next_s is None else min(next_s, cursor.retry_at_s)
                continue
            by_leader.setdefault(self._cluster.leader(cursor.topic, cursor.partition), []).append(cursor)
        for leader, cursors in by_leader.items():
            connection = self._cluster.open_connection(leader)
            asked = [(cursor, cursor.version) for cursor in cursors]
            if connection is None:
                for cursor in cursors:
                    cursor.is_fetching = True
                self._tasks.spawn("reach the leader", self._reach(asked))
            elif self._waiting_at[leader] < FETCHES_PER_LEADER_MAX:
                self._fetch(connection, leader, asked)
        self._pump_at(next_s)

    def _pump_at(self, at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(at_s, self.pump)

    async def _reach(self, asked: Sequence[Asked]) -> None:
        for cursor, version in asked:
            try:
                leader = await self._cluster.leader_of(cursor.topic, cursor.partition)
                await self._cluster.connection(leader)
            except FlyMQError as error:
                self._failed(cursor, version, error)
            else:
                self._freed(cursor, version)
        self.pump()

    def _fetch(self, connection: Connection, leader: int, asked: Sequence[Asked]) -> None:
        config = self._config
        request = Fetch(
            partitions=[
                FetchPartition(
                    topic=cursor.topic,
                    partition=cursor.partition,
                    offset=cursor.fetch_offset,
                    max_bytes=config.partition_bytes_max,
                )
                for cursor, _ in asked
            ],
            min_bytes=config.fetch_bytes_min,
            max_wait_ms=config.fetch_wait_ms,
            max_bytes=config.fetch_bytes_max,
            isolation=config.isolation,
        )
        answer = connection.send(request)
        for cursor, _ in asked:
            cursor.is_fetching = True
        self._waiting_at[leader] += 1
        timeout_s = self._cluster.request_timeout_s + config.fetch_wait_ms / 1000
        timer = self._loop.call_later(timeout_s, self._timed_out, connection, leader, request.id, asked)
        answer.add_done_callback(partial(self._answered, leader, asked, timer))

    def _answered(
        self, leader: int, asked: Sequence[Asked], timer: asyncio.TimerHandle, answer: asyncio.Future[Message]
    ) -> None:
        timer.cancel()
        self._waiting_at[leader] -= 1
        error = answer.exception()
        if error is not None:
            self._all_failed(asked, cast(FlyMQError, error))
            return
        by_name = {(cursor.topic, cursor.partition): (cursor, version) for cursor, version in asked}
        for cursor, version in asked:
            self._freed(cursor, version)
        for part in cast(FetchAnswer, answer.result()).partitions:
            found = by_name.get((part.topic, part.partition))
            if found is not None and found[0].version == found[1]:
                self._received(*found, part)
        self.pump()

    def _received(self, cursor: Cursor, version: int, part: FetchedPartition) -> None:
        if part.error is not None:
            self._failed(cursor, version, error_of(part.error))
            return
        cursor.attempts = 0
        cursor.high_watermark = part.high_watermark
        batches, fault = intact_part(part.batches)
        next_offset = end_offset(batches)
        if next_offset is not None and next_offset > cursor.fetch_offset:
            cursor.add_run(FetchedRun(batches, cursor.fetch_offset, next_offset, part.aborted))
            self._mark_ready(cursor)
        elif fault is not None:
            error = unreadable_batch(cursor.topic, cursor.partition, cursor.fetch_offset, -1, fault)
            self._failed(cursor, version, error)

    def _timed_out(self, connection: Connection, leader: int, request_id: int, asked: Sequence[Asked]) -> None:
        connection.abandon(request_id)
        self._waiting_at[leader] -= 1
        self._all_failed(asked, RequestTimedOut(f"{connection} did not answer FETCH in time"))

    def _all_failed(self, asked: Sequence[Asked], error: FlyMQError) -> None:
        for cursor, version in asked:
            self._failed(cursor, version, error)
        self.pump()

    def _freed(self, cursor: Cursor, version: int) -> None:
        if cursor.version == version:
            cursor.is_fetching = False

    def _failed(self, cursor: Cursor, version: int, error: FlyMQError) -> None:
        """Retry later, reset the offset, or raise the error to the user."""
        if cursor.version != version or self._is_closed:
            return
        cursor.is_fetching = False
        cursor.attempts += 1
        if isinstance(error, OffsetOutOfRange) and self._config.start in START_POSITIONS:
            cursor.is_fetching = True
            self._tasks.spawn("reset the offset", self._reset(cursor, version))
        elif self._cluster.may_retry(error):
            self._cluster.counters.retries += 1
            self._cluster.invalidate(cursor.topic)
            pause_s = self._cluster.backoff.delay_s(cursor.attempts, self._cluster.entropy)
            cursor.retry_at_s = self._loop.time() + pause_s
        else:
            cursor.error = error
            self._mark_ready(cursor)

    async def _reset(self, cursor: Cursor, version: int) -> None:
        """The offset is out of range, for example because of retention: reset it as the `start` setting says."""
        try:
            found = await list_offsets(
                self._cluster, {cursor.name: START_POSITIONS[self._config.start]}, self._config.isolation
            )
        except FlyMQError as error:
            self._failed(cursor, version, error)
        else:
            if cursor.version == version:
                cursor.seek(found[cursor.name].offset)
        self.pump()

    def _mark_ready(self, cursor: Cursor) -> None:
        if (cursor.runs or cursor.error is not None) and not cursor.is_ready:
            cursor.is_ready = True
            self._ready.append(cursor)
            self._arrival.set()

    def _task_failed(self, name: str, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"FlyMQ consumer: {name} failed", "exception": error})
