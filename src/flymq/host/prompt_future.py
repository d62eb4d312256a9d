"""A future whose callbacks run immediately when it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class PromptFuture(Generic[R]):
    """Like a future, but its callbacks run immediately, not in the next loop iteration.

    The loop would run them in its next turn, after another look at all sockets. A consumer that waits would have its
    record later by that, and every request that waits for the disk would cost another round through the loop.
    """

    __slots__ = ("_callbacks", "_exception", "_is_cancelled", "_is_done", "_result")

    def __init__(self) -> None:
        self._is_done = False
        self._is_cancelled = False
        self._result: R | None = None
        self._exception: BaseException | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self._is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def set_result(self, result: R) -> None:
        """Run the callbacks, unless it was cancelled."""
        if not self._is_done:
            self._result = result
            self._end()

    def set_exception(self, error: BaseException) -> None:
        """Run the callbacks, unless it was cancelled. Nobody has to retrieve the error."""
        if not self._is_done:
            self._exception = error
            self._end()

    def cancel(self) -> None:
        """Stop waiting; the result is not needed."""
        if not self._is_done:
            self._is_cancelled = True
            self._end()

    def cancelled(self) -> bool:
        return self._is_cancelled

    def done(self) -> bool:
        return self._is_done

    def exception(self) -> BaseException | None:
        return self._exception

    def result(self) -> R:
        assert self._is_done and not self._is_cancelled
        if self._exception is not None:
            raise self._exception
        return self._result  # type: ignore[return-value]

    def __await__(self) -> Generator[None, None, R]:
        if not self._is_done:
            done = asyncio.get_running_loop().create_future()
            self.add_done_callback(lambda _: None if done.done() else done.set_result(None))
            try:
                yield from done
            finally:
                self.cancel()
        if self._is_cancelled:
            raise asyncio.CancelledError
        return self.result()

    def _end(self) -> None:
        self._is_done = True
        # Drop them: they usually reference this future, and a cycle per request is work for the garbage collector.
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
