"""Which offset of a partition can be committed when its records are processed in parallel and finish in any order."""

from __future__ import annotations

from collections import deque

from flymq.client.cursor import Cursor


class Progress:
    """The records of one partition in progress. Only what is finished without a gap can be committed."""

    __slots__ = ("_cursor", "_done", "_started", "_version")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._version = cursor.version
        self._started: deque[int] = deque()
        self._done: set[int] = set()

    @property
    def is_current(self) -> bool:
        """False after a seek or when the partition was revoked: what was started before no longer counts."""
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
            self._cursor.in_progress = self._started[0] if self._started else None
