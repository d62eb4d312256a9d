"""The background thread with the event loop of all blocking clients of a process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, ClassVar, TypeVar

from flymq.model.errors import ClientClosed, InvalidSetting

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread. It starts with the first client and ends with the last."""

    _shared: ClassVar[LoopThread | None] = None
    _users: ClassVar[int] = 0
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_orphan = False
        self._thread = threading.Thread(target=self._run, name="flymq client", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls) -> LoopThread:
        with cls._guard:
            if cls._shared is None:
                cls._shared = cls()
            cls._users += 1
            return cls._shared

    @classmethod
    def release(cls) -> None:
        with cls._guard:
            cls._users -= 1
            if cls._users > 0 or cls._shared is None:
                return
            shared, cls._shared = cls._shared, None
        shared._stop()

    @classmethod
    def reset_after_fork(cls) -> None:
        """A forked child has the memory but not the thread: its first client starts a new one."""
        if cls._shared is not None:
            cls._shared._is_orphan = True
        cls._shared = None
        cls._users = 0
        cls._guard = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result. An interrupt cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidSetting(
                "a blocking call from a client callback would deadlock",
                hint="Callbacks must not block; hand the work to another thread.",
            )
        future = self.start(work)
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed("the client was closed while this call waited") from None
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop; return a future of its result."""
        if self._is_orphan:
            work.close()
            raise ClientClosed(
                "the client was created before this process was forked",
                hint="Create one in each process, after the fork.",
            )
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop has ended
            work.close()
            raise ClientClosed from None

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the loop and wait for its result."""

        async def work() -> T:
            return function()

        return self.run(work())

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Schedule a function on the loop; do not wait."""
        if not self._is_orphan:
            self._loop.call_soon_threadsafe(function, *args)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _stop(self) -> None:
        if threading.current_thread() is self._thread:  # collected as garbage here: a thread cannot join itself
            self._loop.stop()
            return

        async def finish() -> None:
            left = asyncio.all_tasks() - {asyncio.current_task()}  # of clients that were not closed
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
            await self._loop.shutdown_default_executor()

        self.run(finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


os.register_at_fork(after_in_child=LoopThread.reset_after_fork)
