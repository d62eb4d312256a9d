"""Group commit: many appends that wait for the disk share one fsync, which runs off the event loop.

While one round of fsyncs is under way, everyone who comes collects for the next. A failed fsync is never retried: the
kernel may have dropped the pages and would call the second try a success. It is reported once, and the broker stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from flymq.host.tasks import Tasks, Threads
from flymq.model.errors import FsyncFailed, NotLeader, StorageError
from flymq.storage.log import Log, SyncPoint

_Waiter = tuple[int, "asyncio.Future[None]"]


class Flusher:
    """Makes logs durable. One for a broker."""

    def __init__(self, threads: Threads, tasks: Tasks, on_fatal: Callable[[FsyncFailed], None]) -> None:
        self._threads = threads
        self._tasks = tasks
        self._on_fatal = on_fatal
        self._waiting: dict[Log, list[_Waiter]] = {}
        self._running = False
        self.rounds = 0
        """Rounds of fsync so far, for metrics."""

    def durable(self, log: Log, end_offset: int) -> asyncio.Future[None]:
        """Return a future that is done when everything before `end_offset` is on the disk."""
        future = asyncio.get_running_loop().create_future()
        if log.durable_offset >= end_offset:
            future.set_result(None)
            return future
        self._waiting.setdefault(log, []).append((end_offset, future))
        if not self._running:
            self._running = True
            self._tasks.spawn("flusher", self._run())
        return future

    async def checkpoint(self, log: Log) -> None:
        """Save what makes the next opening of `log` quick."""
        point = log.begin_checkpoint()
        if point is None:
            return
        try:
            await self._threads.run(point.run)
        except FsyncFailed as error:
            self._on_fatal(error)
            raise
        except StorageError as error:
            log.go_offline(error)
            raise
        log.end_sync(point)

    async def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                self.rounds += 1
                points = {log: log.begin_sync() for log in waiting}
                errors = await self._threads.run(lambda points=points: _run_all(points))  # type: ignore[misc]
                for log, waiters in waiting.items():
                    self._finish(log, points[log], waiters, errors.get(log))
        finally:
            self._running = False

    def _finish(self, log: Log, point: SyncPoint, waiters: list[_Waiter], error: StorageError | None) -> None:
        if error is None:
            log.end_sync(point)
        elif isinstance(error, FsyncFailed):
            self._on_fatal(error)
        else:
            log.go_offline(error)
        for end_offset, future in waiters:
            if future.done():
                continue  # whoever waited has gone
            if error is not None:
                future.set_exception(error)
            elif log.durable_offset < end_offset:
                future.set_exception(NotLeader(f"{log.directory.name} was truncated before offset {end_offset}"))
            else:
                future.set_result(None)


def _run_all(points: dict[Log, SyncPoint]) -> dict[Log, StorageError]:
    """Run every point; return what failed. One partition's failure is not another's."""
    errors = {}
    for log, point in points.items():
        try:
            point.run()
        except StorageError as error:
            errors[log] = error
    return errors
