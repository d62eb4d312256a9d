"""The latest changes, for watchers: bounded, and one history for all of them.

A watcher is just a position in this history. It has no queue, so a slow one costs nothing and a closed one needs no
cleanup; one that falls behind the oldest change kept gets `RevisionCompacted` and has to read everything again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from flymq.metadata.store import Event, EventBatch
from flymq.model.errors import RevisionCompacted

_EVENT_BYTES = 200  # approximate overhead of the objects around a key and a value


class History:
    """The batches of the revisions from `start_revision` to `end_revision`, one each; the oldest are dropped first."""

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
        """Yield the batches from `revision` on; more may be appended during the iteration."""
        while revision < self.end_revision:
            start = self.start_revision
            if revision < start:
                raise RevisionCompacted(f"revision {revision} has been compacted; the oldest one available is {start}")
            yield self._batches[revision - start]
            revision += 1


def _size(batch: EventBatch) -> int:
    return sum(_EVENT_BYTES + len(key) + (len(found.value) if found else 0) for key, found in batch.events)


def only_under(prefix: str, batch: EventBatch) -> EventBatch | None:
    """Return the part of a batch under `prefix`; None if there is none."""
    events: tuple[Event, ...] = tuple(event for event in batch.events if event.key.startswith(prefix))
    return EventBatch(batch.revision, events) if events else None
