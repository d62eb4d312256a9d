"""Prefetch: keep some records of every partition in memory before the user polls.

Each partition is in at most one FETCH in flight. Several may wait at a broker at once, so an empty partition is
requested at once, whatever the others do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias, cast

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.connection import Connection
from flymq.client.aio.failover import PATIENCE_S, InFlight
from flymq.client.aio.offsets import list_offsets
from flymq.client.cursor import Cursor, FetchedRun
from flymq.client.decoding import unreadable_batch
from flymq.client.settings import ConsumerConfig
from flymq.host.tasks import Tasks
from flymq.model.delivery import Isolation
from flymq.model.errors import FlyMQError, NotLeader, OffsetOutOfRange, RequestTimedOut
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
from flymq.wire.native.messages.topics import NO_BROKER

logger = logging.getLogger(__name__)

FETCHES_PER_LEADER_MAX = 8
_SHORTER_LOG_ATTEMPTS = 8

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
        self._topic_ids: dict[str, bytes] = {}  # of the topics whose records were fetched
        timeout_s = min(PATIENCE_S, cluster.request_timeout_s)
        self._first_look_s = config.fetch_wait_ms / 1000 + timeout_s
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
                self._tasks.spawn("reach the leader", self._reach(leader, asked))
            elif self._waiting_at[leader] < FETCHES_PER_LEADER_MAX:
                self._fetch(connection, leader, asked)
        self._pump_at(next_s)

    def _pump_at(self, at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = self._loop.call_at(at_s, self.pump)

    async def _reach(self, leader: int, asked: Sequence[Asked]) -> None:
        """Find the leaders of these partitions, or connect to the one they have. None waits for that of another."""
        is_known = leader != NO_BROKER
        for step in [asked] if is_known else [[one] for one in asked]:
            try:
                if is_known:
                    names = [(cursor.topic, cursor.partition) for cursor, _ in step]
                    await self._cluster.while_leading(leader, names, self._cluster.connection(leader))
                else:
                    [(cursor, _)] = step
                    await self._cluster.leader_of(cursor.topic, cursor.partition)
            except FlyMQError as error:
                for cursor, version in step:
                    self._failed(cursor, version, error)
            else:
                for cursor, version in step:
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
                    leader_epoch=self._cluster.leader_epoch(cursor.topic, cursor.partition),
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
        flight = InFlight(connection, leader, request.id, asked, self._loop.time() + config.fetch_wait_ms / 1000)
        flight.timer = self._loop.call_later(self._first_look_s, self._look_after, flight)
        answer.add_done_callback(partial(self._answered, flight))

    def _answered(self, flight: InFlight[Asked], answer: asyncio.Future[Message]) -> None:
        flight.end()
        asked = flight.parts
        self._waiting_at[flight.leader] -= 1
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
        if cursor.high_watermark < 0:
            self._note_topic(cursor.topic)
        cursor.high_watermark = part.high_watermark
        batches, fault = intact_part(part.batches)
        next_offset = end_offset(batches)
        if next_offset is not None and next_offset > cursor.fetch_offset:
            cursor.add_run(FetchedRun(batches, cursor.fetch_offset, next_offset, part.aborted))
            self._mark_ready(cursor)
        elif fault is not None:
            error = unreadable_batch(cursor.topic, cursor.partition, cursor.fetch_offset, -1, fault)
            self._failed(cursor, version, error)

    def _look_after(self, flight: InFlight[Asked]) -> None:
        """The leader is silent. Wait until the request has no more time, or another broker leads."""
        now_s = self._loop.time()
        until_s = flight.since_s + self._cluster.request_timeout_s
        if now_s >= until_s:
            self._give_up(flight)
            return
        if flight.check is None and now_s - flight.since_s >= PATIENCE_S:
            flight.check = self._tasks.spawn("check the leader", self._check_leader(flight))
        flight.timer = self._loop.call_at(min(until_s, now_s + PATIENCE_S), self._look_after, flight)

    async def _check_leader(self, flight: InFlight[Asked]) -> None:
        names = [(cursor.topic, cursor.partition) for cursor, _ in flight.parts]
        is_replaced = False
        with suppress(FlyMQError):
            is_replaced = not await self._cluster.leads_any(flight.leader, names)
        flight.check = None
        if is_replaced:
            self._give_up(flight)

    def _give_up(self, flight: InFlight[Asked]) -> None:
        flight.connection.abandon(flight.request_id)
        flight.end()
        self._waiting_at[flight.leader] -= 1
        self._cluster.counters.errors[RequestTimedOut.code] += 1
        self._all_failed(flight.parts, RequestTimedOut(f"{flight.connection} did not answer FETCH in time"))

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
            self._cluster.invalidate(cursor.topic, cursor.partition)
            pause_s = self._cluster.backoff.delay_s(cursor.attempts, self._cluster.entropy)
            cursor.retry_at_s = self._loop.time() + pause_s
        else:
            cursor.error = error
            self._mark_ready(cursor)

    async def _reset(self, cursor: Cursor, version: int) -> None:
        """The offset is out of range, for example because of retention: reset it as the `start` setting says."""
        try:
            offset = await self._next_offset(cursor)
        except FlyMQError as error:
            self._failed(cursor, version, error)
        else:
            if cursor.version == version:
                cursor.seek(offset)
        self.pump()

    async def _next_offset(self, cursor: Cursor) -> int:
        """Return where a cursor continues whose offset is out of range.

        If the log was longer before, it has lost its end: in a crash, or with a leader that was not in sync. Then
        the next record is at the new end: what is before that was read. Not at once: a leader that was just elected
        may not know its log's end yet.
        """
        position, seen_end = cursor.fetch_offset, cursor.high_watermark
        topic = await self._cluster.refresh(cursor.topic)
        is_same_topic = bytes(topic.topic_id) == self._topic_ids.get(cursor.topic)
        if seen_end >= position and is_same_topic:
            found = await list_offsets(self._cluster, {cursor.name: AT_LATEST}, Isolation.READ_UNCOMMITTED)
            end = found[cursor.name].offset
            if end < position:
                if cursor.attempts < _SHORTER_LOG_ATTEMPTS:
                    raise NotLeader(f"{cursor.name} ends at {end}, before {position}, which was read")
                logger.warning(
                    "%s has lost its last %d offsets, which this consumer has read; continuing at its end, %d",
                    *(cursor.name, position - end, end),
                )
                return end
            first = await list_offsets(self._cluster, {cursor.name: AT_EARLIEST}, Isolation.READ_UNCOMMITTED)
            if first[cursor.name].offset <= position:
                return position  # the leader knows by now that it has it
        self._topic_ids[cursor.topic] = bytes(topic.topic_id)
        start = START_POSITIONS[self._config.start]
        return (await list_offsets(self._cluster, {cursor.name: start}, self._config.isolation))[cursor.name].offset

    def _note_topic(self, name: str) -> None:
        if (topic_id := self._cluster.topic_id(name)) is not None:
            self._topic_ids[name] = topic_id

    def _mark_ready(self, cursor: Cursor) -> None:
        if (cursor.runs or cursor.error is not None) and not cursor.is_ready:
            cursor.is_ready = True
            self._ready.append(cursor)
            self._arrival.set()

    def _task_failed(self, name: str, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"FlyMQ consumer: {name} failed", "exception": error})
