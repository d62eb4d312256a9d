"""How far a partition is done when its records are worked on at the same time and finish in any order."""

from __future__ import annotations

from collections import deque

from flymq.client.cursor import Cursor


class Progress:
    """The records of one partition that were started. Only what is done without a gap may be committed."""

    __slots__ = ("_cursor", "_done", "_started", "_version")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._version = cursor.version
        self._started: deque[int] = deque()
        self._done: set[int] = set()

    @property
    def is_current(self) -> bool:
        """False once the reader has jumped or lost the partition: what was started then counts no more."""
        return self._cursor.version == self._version

    def start(self, offset: int) -> None:
        self._started.append(offset)
        self._update()

    def finish(self, offset: int) -> None:
        self._done.add(offset)
        while self._started and self._started[0] in self._done:
            self._done.remove(self._started.popleft())
        self._update()

    def _update(self) -> None:
        if self.is_current:
            self._cursor.in_hand = self._started[0] if self._started else None
