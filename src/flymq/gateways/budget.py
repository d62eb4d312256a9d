"""How much memory all connections together may hold in unfinished requests and unsent answers."""

from __future__ import annotations

from collections.abc import Callable


class BufferBudget:
    """A sum with a limit. Nobody is refused: who finds it exhausted stops reading until it is not."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._waiting: dict[Callable[[], None], None] = {}  # a set that keeps its order

    @property
    def used(self) -> int:
        return self._used

    @property
    def used_share(self) -> float:
        return self._used / self._bytes_max

    @property
    def is_exhausted(self) -> bool:
        return self._used > self._bytes_max

    def change(self, by: int) -> None:
        """Take bytes, or give them back when `by` is negative."""
        self._used += by
        while self._waiting and not self.is_exhausted:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()

    def when_free(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when there is room again."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        self._waiting.pop(resume, None)
