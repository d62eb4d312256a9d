"""An event loop whose time passes only when nobody has anything to do: an hour of waiting takes no time at all.

It tells apart who runs. What is begun within a `Life` (one run of a simulated machine), and all that comes of it, runs
only while that life lasts: a machine that crashed stops in the middle of everything, with the shipped code unchanged.
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
    """Nothing is ready and no timer is set: nothing will ever happen again."""


class Life:
    """One run of a machine, from its start to its end. Nothing of it happens afterwards."""

    def __init__(self) -> None:
        self.is_over = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._context = copy_context()
        self._context.run(_life.set, self)
        self._held: list[tuple[Callable[..., object], tuple[Any, ...], Context]] | None = None

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Let it do something."""
        return asyncio.get_running_loop().create_task(work, name=name, context=self._context.copy())

    def end(self) -> None:
        self.is_over = True
        if not self.over.done():
            self.over.set_result(None)

    def pause(self) -> None:
        """Stand still, as a process that is stopped: what becomes due happens after `resume`."""
        self._held = self._held or []

    def resume(self) -> None:
        held, self._held = self._held, None
        for callback, args, context in held or ():
            asyncio.get_running_loop().call_soon(callback, *args, context=context)

    def run(self, callback: Callable[..., object], *args: Any) -> None:
        """Do what has become due, if there is somebody to do it."""
        if self._held is not None:
            self._held.append((callback, args, copy_context()))
        elif not self.is_over:
            callback(*args)


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, move the clock to the moment for which the loop would have waited."""

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
        """What went wrong where nobody could be told."""
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
        """End what was never finished, in the order in which it began: much of it belongs to lives that are over."""
        for task in self._started:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), PowerCut):
            self.failures.append(context)


class LoopClock(Clock):
    """The loop's time, and a wall clock that began in 2023."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end in virtual time. Fails if anything has failed that nobody was told of."""
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
    """Close a coroutine and those it waits for, innermost first, whatever they try to do about it."""
    if isinstance(work.cr_await, CoroutineType):
        _close(work.cr_await)
    for _ in range(100):
        try:
            work.close()
            return
        except BaseException:  # it awaits something in a `finally`, or cannot do what it wants to any more
            continue
