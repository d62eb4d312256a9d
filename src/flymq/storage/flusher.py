"""Group commit: many appends that wait for the disk share one fsync, which runs off the event loop.

While one round of fsyncs runs, new requests collect for the next. A failed fsync is never retried: the kernel may have
dropped the pages and would report success the second time. It is reported once, and the broker stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from flymq.host.tasks import Tasks, Threads
from flymq.model.errors import FsyncFailed, NotLeader, ResourcesExhausted, StorageError
from flymq.storage.log import Log, SyncPoint


class _Waiter(NamedTuple):
    end_offset: int
    truncations: int
    """Of the log when the wait began: if it was truncated since, the batches may be gone."""
    future: asyncio.Future[None]


class Flusher:
    """Makes logs durable. One for a broker."""

    def __init__(self, threads: Threads, tasks: Tasks, on_fatal: Callable[[FsyncFailed], None]) -> None:
        self._threads = threads
        self._tasks = tasks
        self._on_fatal = on_fatal
        self._failure: FsyncFailed | None = None
        self._waiting: dict[Log, list[_Waiter]] = {}
        self._running = False
        self.rounds = 0
        """Rounds of fsync so far, for metrics."""

    @property
    def has_failed(self) -> bool:
        """Whether an fsync has failed: what is in the page cache can no longer be trusted."""
        return self._failure is not None

    def durable(self, log: Log, end_offset: int) -> asyncio.Future[None]:
        """Return a future that is done when everything before `end_offset` is on the disk."""
        future = asyncio.get_running_loop().create_future()
        if log.durable_offset >= end_offset:
            future.set_result(None)
        elif self._failure is not None:
            future.set_exception(self._failure)
        else:
            self._wait(log, end_offset, future)
        return future

    def flush(self, log: Log) -> asyncio.Future[None]:
        """Return a future that is done when all that was appended and every epoch begun so far is on the disk."""
        future = asyncio.get_running_loop().create_future()
        if log.is_durable:
            future.set_result(None)
        elif self._failure is not None:
            future.set_exception(self._failure)
        else:
            self._wait(log, log.end_offset, future)
        return future

    def _wait(self, log: Log, end_offset: int, future: asyncio.Future[None]) -> None:
        """Add the future to the next round."""
        self._waiting.setdefault(log, []).append(_Waiter(end_offset, log.truncations, future))
        if not self._running:
            self._running = True
            self._tasks.spawn("flusher", self._run())

    async def checkpoint(self, log: Log) -> None:
        """Save a checkpoint, which makes the next opening of `log` quick."""
        try:
            point = log.begin_checkpoint()
            if point is None:
                return
            await self._threads.run(point.run)
        except StorageError as error:
            self._take_failure(log, error)
            raise
        log.end_sync(point)

    async def _run(self) -> None:
        round_: dict[Log, list[_Waiter]] = {}
        try:
            while self._waiting:
                round_, self._waiting = self._waiting, {}
                self.rounds += 1
                points = {log: log.begin_sync() for log in round_}
                errors = await self._threads.run(lambda points=points: _run_all(points))  # type: ignore[misc]
                for log, waiters in round_.items():
                    self._finish(log, points[log], waiters, errors.get(log))
        finally:
            # No future is left pending when the broker stops in the middle of a round.
            for waiters in (*round_.values(), *self._waiting.values()):
                for waiter in waiters:
                    waiter.future.cancel()
            self._waiting = {}
            self._running = False

    def _finish(self, log: Log, point: SyncPoint, waiters: list[_Waiter], error: StorageError | None) -> None:
        if error is None:
            log.end_sync(point)
        else:
            self._take_failure(log, error)
        for waiter in waiters:
            if waiter.future.done():
                continue  # the waiter was cancelled
            if error is not None:
                waiter.future.set_exception(error)
            elif waiter.truncations != log.truncations:
                waiter.future.set_exception(
                    NotLeader(f"{log.name} was truncated before offset {waiter.end_offset} was safe")
                )
            else:
                waiter.future.set_result(None)

    def _take_failure(self, log: Log, error: StorageError) -> None:
        if isinstance(error, ResourcesExhausted):  # nothing is lost: the next round tries again
            log.gate.report(error)
            return
        log.go_offline(error)
        if isinstance(error, FsyncFailed) and self._failure is None:
            self._failure = error
            self._on_fatal(error)


def _run_all(points: dict[Log, SyncPoint]) -> dict[Log, StorageError]:
    """Run every point; return what failed. One partition's failure is not another's."""
    errors = {}
    for log, point in points.items():
        try:
            point.run()
        except StorageError as error:
            errors[log] = error
    return errors
