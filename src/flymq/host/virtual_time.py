"""An event loop with virtual time, which advances only when nothing is ready: an hour of waiting takes no time at all.

Callbacks belong to a `Life` (one run of a simulated machine), as do the callbacks and tasks they start, and run only
while it lasts: a crashed machine stops in the middle of everything, without changes to the production code.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from types import CoroutineType
from typing import Any, TypeVar

from flymq.host.clock import Clock
from flymq.host.simulated_disk import PowerCut

T = TypeVar("T")

_life: ContextVar[Life | None] = ContextVar("life", default=None)


class EverybodyWaits(Exception):
    """A deadlock: nothing is ready and no timer is set."""


class Life:
    """One run of a machine, from start to end. Its callbacks do not run afterwards."""

    def __init__(self) -> None:
        self.is_over = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._context = copy_context()
        self._context.run(_life.set, self)
        self._held: list[tuple[Callable[..., object], tuple[Any, ...], Context]] | None = None

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run something in this life."""
        return asyncio.get_running_loop().create_task(work, name=name, context=self._context.copy())

    def end(self) -> None:
        self.is_over = True
        if not self.over.done():
            self.over.set_result(None)

    def pause(self) -> None:
        """Pause, like a stopped process: due callbacks run after `resume`."""
        self._held = self._held or []

    def resume(self) -> None:
        held, self._held = self._held, None
        for callback, args, context in held or ():
            asyncio.get_running_loop().call_soon(callback, *args, context=context)

    def run(self, callback: Callable[..., object], *args: Any) -> None:
        """Run a due callback, unless its life is over or paused."""
        if self._held is not None:
            self._held.append((callback, args, copy_context()))
        elif not self.is_over:
            callback(*args)


class _Selector(selectors.DefaultSelector):
    """A selector that advances the clock instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise EverybodyWaits
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-9
        self._started: list[asyncio.Task[Any]] = []
        self.failures: list[dict[str, Any]] = []
        """Exceptions without a receiver."""
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        return self._virtual.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if (life := _life.get() if context is None else context.get(_life)) is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(life.run, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if (life := _life.get() if context is None else context.get(_life)) is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, life.run, callback, *args, context=context)

    def create_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        self._started.append(task := super().create_task(*args, **options))
        return task

    def bury(self) -> None:
        """Close unfinished coroutines in start order: many belong to lives that are over."""
        for task in self._started:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), PowerCut):
            self.failures.append(context)


class LoopClock(Clock):
    """The time of the loop, and a wall clock that starts in 2023."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()

    def boottime_s(self) -> float:
        return self._loop.time()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to completion in virtual time. Fails if there was an exception without a receiver."""
    loop = VirtualTimeLoop()
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(work)
        assert not loop.failures, loop.failures
        return result
    finally:
        loop.bury()
        asyncio.set_event_loop(None)
        loop.close()


def _close(work: Any) -> None:
    """Close a coroutine and those it awaits, innermost first, even if they resist."""
    if isinstance(work.cr_await, CoroutineType):
        _close(work.cr_await)
    for _ in range(100):
        try:
            work.close()
            return
        except BaseException:  # it awaits in a `finally`, or its resources are gone
            continue
