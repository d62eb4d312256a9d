"""The latest changes, for those who watch: bounded, and shared by all watchers.

A watcher is no more than a position in this history. It owns no queue, so a slow one costs nothing and a gone one
needs no cleaning up; one that falls behind what is kept learns that it has to read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from flymq.metadata.store import Event, EventBatch
from flymq.model.errors import RevisionCompacted

_EVENT_BYTES = 200  # what the objects around a key and a value take, roughly


class History:
    """The batches of the revisions from `start_revision` to `end_revision`, one each; the oldest go first."""

    def __init__(self, next_revision: int, *, bytes_max: int) -> None:
        self._batches: deque[EventBatch] = deque()
        self._bytes = 0
        self._bytes_max = bytes_max
        self.end_revision = next_revision

    @property
    def start_revision(self) -> int:
        return self.end_revision - len(self._batches)

    def append(self, batch: EventBatch) -> None:
        assert batch.revision == self.end_revision, "every revision has one batch"
        self._batches.append(batch)
        self._bytes += _size(batch)
        self.end_revision += 1
        while self._bytes > self._bytes_max:
            self._bytes -= _size(self._batches.popleft())

    def since(self, revision: int) -> Iterator[EventBatch]:
        """Yield the batches from `revision` on; more may be appended while they are read."""
        while revision < self.end_revision:
            start = self.start_revision
            if revision < start:
                raise RevisionCompacted(f"revision {revision} is forgotten; the oldest one known is {start}")
            yield self._batches[revision - start]
            revision += 1


def _size(batch: EventBatch) -> int:
    return sum(_EVENT_BYTES + len(key) + (len(entry.value) if entry else 0) for key, entry in batch.events)


def only_under(prefix: str, batch: EventBatch) -> EventBatch | None:
    """Return what of a batch lies under `prefix`, None when nothing does."""
    events: tuple[Event, ...] = tuple(event for event in batch.events if event.key.startswith(prefix))
    return EventBatch(batch.revision, events) if events else None
