"""The memory budget of all connections, for incomplete requests and unsent responses."""

from __future__ import annotations

from collections.abc import Callable


class BufferBudget:
    """A sum with a limit. No request is refused: while it is exhausted, connections stop reading."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._waiting: dict[Callable[[], None], None] = {}  # an ordered set

    @property
    def used(self) -> int:
        return self._used

    @property
    def used_ratio(self) -> float:
        return self._used / self._bytes_max

    @property
    def is_exhausted(self) -> bool:
        return self._used > self._bytes_max

    def change(self, by: int) -> None:
        """Reserve bytes, or release them if `by` is negative."""
        self._used += by
        while self._waiting and not self.is_exhausted:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()

    def when_free(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when memory is available again."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        self._waiting.pop(resume, None)
