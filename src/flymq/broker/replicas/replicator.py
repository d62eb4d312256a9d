"""Copies the partitions that this broker follows: one connection and one task for each leader.

The task connects, and again when the connection was lost. Between that, callbacks do the work: what a leader answers is
written, and the next fetch sent, in the same turn of the loop.

While a fetch waits at the leader, a second one can be sent: new partitions, and what has reached the disk here, need
not wait for the first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from flymq.broker.replicas.following import Answer, Following, Question, Rewrite
from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replica_sessions import ReplicaId
from flymq.client.aio.connection import Connection
from flymq.host.failure_log import FailureLog
from flymq.host.prompt_future import PromptFuture
from flymq.host.tasks import Tasks, Threads, run_steps
from flymq.model.delivery import Persistence
from flymq.model.errors import FlyMQError, RequestTimedOut, StorageError
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.peers import (
    ReplicaFetch,
    ReplicaFetchAnswer,
    ReplicaNews,
    ReplicaPosition,
    ReplicaRef,
)

logger = logging.getLogger(__name__)

_IN_FLIGHT_MAX = 2
_TRY_AGAIN_S = 0.1
_RECONNECT_S = 0.1
_RECONNECT_S_MAX = 1.0
_SILENCE_S_MAX = 10.0

Connect = Callable[[int], Awaitable[Connection]]
"""Opens a connection to a broker, on which this one is known as a peer."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How a follower fetches."""

    wait_ms: int = 500
    bytes_max: int = 8 << 20
    bytes_per_s: int = 0
    """Limit for all replicas that are not in sync; 0: none."""


class Replicator:
    """Copies all partitions that this broker follows."""

    def __init__(
        self, connect: Connect, flusher: Flusher, threads: Threads, tasks: Tasks, settings: FetchSettings
    ) -> None:
        self._connect = connect
        self._threads = threads
        self._flusher = flusher
        self._tasks = tasks
        self._settings = settings
        self._leaders: dict[int, _Copying] = {}
        self._leader_of: dict[ReplicaId, int] = {}
        self._paid_until_s = 0.0
        self.is_catching_up: Callable[[ReplicaId], bool] = lambda replica: False
        """Whether the replica on this broker is not in sync."""
        self._trimming: dict[Partition, None] = {}
        self.bytes_copied = 0
        self.on_rewritten: Callable[[Partition], None] = lambda partition: None
        """Called with a partition whose role can be changed again."""
        self._failures = FailureLog(logger, "partitions led by broker %s cannot be copied now, retrying")

    def follow(self, topic_id: bytes, partition: Partition, leader: int) -> None:
        """Copy this partition from this leader, in its current epoch."""
        replica = topic_id, partition.name.partition
        if self._leader_of.get(replica) != leader:
            self.stop(replica)
        self._leader_of[replica] = leader
        copying = self._leaders.get(leader)
        if copying is None:
            copying = self._leaders[leader] = _Copying(leader)
            self._tasks.spawn(f"copy from broker {leader}", self._copy(copying))
        copying.following.add(topic_id, partition)
        copying.wake()

    def stop(self, replica: ReplicaId) -> None:
        """Copy this partition no more."""
        leader = self._leader_of.pop(replica, None)
        if leader is not None:
            copying = self._leaders[leader]
            copying.following.remove(replica)
            copying.wake()

    def _pause_s(self, replica: ReplicaId, size: int) -> float:
        """Return how long to wait before more of a partition is fetched: those that catch up have a common limit."""
        rate = self._settings.bytes_per_s
        if not rate or not self.is_catching_up(replica):
            return 0.0
        now_s = asyncio.get_running_loop().time()
        self._paid_until_s = max(now_s, self._paid_until_s) + size / rate
        return self._paid_until_s - now_s

    def reconnect(self) -> None:
        """This broker has registered anew: leaders have to know it by its new registration."""
        for copying in self._leaders.values():
            if copying.connection is not None:
                copying.connection.close()

    async def _copy(self, copying: _Copying) -> None:
        """Copy from one leader until there is nothing more to copy from it."""
        pause_s = _RECONNECT_S
        name = str(copying.leader)
        while len(copying.following):
            try:
                copying.connection = connection = await self._connect(copying.leader)
                copying.following.forget_session()
                self._failures.succeeded(name)
                pause_s = _RECONNECT_S
                await _Exchange(copying, connection, self._settings, partial(self._take, copying)).run()
            except FlyMQError as error:
                self._failures.failed(name, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _RECONNECT_S_MAX)
            finally:
                if copying.connection is not None:
                    copying.connection.close()
                    copying.connection = None
        del self._leaders[copying.leader]

    def _take(self, copying: _Copying, answer: ReplicaFetchAnswer) -> None:
        self.bytes_copied += sum(len(news.batches) for news in answer.partitions)
        taken = copying.following.take(map(_answer, answer.partitions))
        for replica, partition, size in taken.written:
            log = partition.log
            if (pause_s := self._pause_s(replica, size)) > 0:
                copying.following.hold(replica)
                asyncio.get_running_loop().call_later(pause_s, copying.release, replica)
            if log.config.persistence is Persistence.FSYNC and isinstance(log, Log):
                durable = self._flusher.durable(log, log.end_offset)
                durable.add_done_callback(partial(self._synced, copying, replica))
        for rewrite in taken.rewrites:
            rewrite.partition.is_rewritten = True
            self._tasks.spawn(f"rewrite {rewrite.partition.name}", self._rewrite(copying, rewrite))
        for replica in taken.broken:
            self.stop(replica)
        for partition, start_offset in taken.trims:
            if partition not in self._trimming:
                self._trimming[partition] = None
                self._tasks.spawn(f"trim {partition.name}", self._trim(partition, start_offset))

    async def _rewrite(self, copying: _Copying, rewrite: Rewrite) -> None:
        """Change a log in a thread. Nothing else works on it meanwhile; its role is changed afterwards."""
        partition = rewrite.partition
        try:
            with partition.in_use():
                async with partition.upkeep:
                    if isinstance(partition.log, Log):
                        await self._flusher.flush(partition.log)
                    await self._threads.run(rewrite.run)
                    partition.rewritten()
        except StorageError as error:
            logger.error("%s cannot be copied any more: %s", partition.name, error.message)
            self.stop(rewrite.replica)
        finally:
            partition.is_rewritten = False
            copying.release(rewrite.replica)
            self.on_rewritten(partition)

    async def _trim(self, partition: Partition, start_offset: int) -> None:
        """Delete what the leader has deleted."""
        try:
            with partition.in_use():
                async with partition.upkeep:
                    await run_steps(self._threads, partition.log.delete_before(start_offset))
        except FlyMQError as error:
            logger.warning("old records of %s cannot be deleted: %s", partition.name, error.message)
        finally:
            del self._trimming[partition]

    def _synced(self, copying: _Copying, replica: ReplicaId, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            copying.following.note_change(replica)
            copying.wake()


@dataclass(slots=True)
class _Copying:
    """What is copied from one leader."""

    leader: int
    connection: Connection | None = None
    following: Following = field(default_factory=Following)
    exchange: _Exchange | None = None
    """Set while there is a connection."""

    def release(self, replica: ReplicaId) -> None:
        self.following.release(replica)
        self.wake()

    def wake(self) -> None:
        """There may be something to tell the leader."""
        if self.exchange is not None:
            self.exchange.wake()


class _Exchange:
    """Fetches on one connection."""

    def __init__(
        self,
        copying: _Copying,
        connection: Connection,
        settings: FetchSettings,
        take: Callable[[ReplicaFetchAnswer], None],
    ) -> None:
        self._copying = copying
        self._following = copying.following
        self._connection = connection
        self._settings = settings
        self._take = take
        self._silence_s_max = settings.wait_ms / 1000 + _SILENCE_S_MAX
        self._loop = asyncio.get_running_loop()
        self._in_flight: deque[PromptFuture[Message]] = deque()
        self._heard_s = self._loop.time()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._silence: asyncio.TimerHandle
        self._is_awake = False
        self._is_retrying = False

    async def run(self) -> None:
        """Fetch until there is nothing more to copy. Raises an error if the connection is lost or silent."""
        self._copying.exchange = self
        try:
            self._check_silence()
            self._go_on()
            await self._ended
        finally:
            self._copying.exchange = None
            self._silence.cancel()

    def wake(self) -> None:
        """Send what has changed, after everything else that changes in this turn of the loop."""
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._is_awake = False
        self._go_on()

    def _go_on(self, _: object = None) -> None:
        """Take the answers that are here, and fetch on."""
        if self._ended.done():
            return
        try:
            while self._in_flight and self._in_flight[0].done():
                self._take(cast(ReplicaFetchAnswer, self._in_flight.popleft().result()))
                self._heard_s = self._loop.time()
            self._fetch()
        except Exception as error:  # for the task that waits for the end
            self._ended.set_exception(error)

    def _fetch(self) -> None:
        following, in_flight = self._following, self._in_flight
        if not len(following):
            self._ended.set_result(None)
            return
        if following.has_failed and not self._is_retrying:
            self._is_retrying = True
            self._loop.call_later(_TRY_AGAIN_S, self._try_again)
        while not in_flight or (following.has_changes and len(in_flight) < _IN_FLIGHT_MAX):
            sent = self._connection.send_promptly(_request(following.ask(), self._settings))
            in_flight.append(sent)
            sent.add_done_callback(self._go_on)

    def _try_again(self) -> None:
        self._is_retrying = False
        self._following.try_failed_again()
        self._go_on()

    def _check_silence(self) -> None:
        left_s = self._heard_s + self._silence_s_max - self._loop.time()
        if left_s > 0:
            self._silence = self._loop.call_later(left_s, self._check_silence)
        elif not self._ended.done():
            self._ended.set_exception(RequestTimedOut(f"broker {self._copying.leader} does not answer"))


def _request(question: Question, settings: FetchSettings) -> ReplicaFetch:
    return ReplicaFetch(
        positions=[
            ReplicaPosition(
                topic_id,
                number,
                position.leader_epoch,
                position.offset,
                position.last_epoch,
                position.durable_offset,
            )
            for (topic_id, number), position in question.positions
        ],
        forgotten=[ReplicaRef(*replica) for replica in question.forgotten],
        max_wait_ms=settings.wait_ms,
        max_bytes=settings.bytes_max,
    )


def _answer(news: ReplicaNews) -> Answer:
    return Answer(
        (bytes(news.topic_id), news.partition),
        news.batches,
        news.high_watermark,
        news.start_offset,
        None if news.diverging_end < 0 else (news.diverging_epoch, news.diverging_end),
        None if news.error is None else error_of(news.error),
    )
