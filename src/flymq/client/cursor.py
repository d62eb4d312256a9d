"""A consumer's position in one partition: what is fetched, what the user is processing, what can be committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import NamedTuple

from flymq.client.records import ConsumerRecord
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition
from flymq.record.reading import Aborted


class FetchedRun(NamedTuple):
    """Fetched batches, not decoded yet."""

    batches: memoryview
    start_offset: int
    next_offset: int
    aborted: Sequence[Aborted]


class Cursor:
    """One partition of one consumer.

    `version` changes with every seek; anything fetched or handed out under an older version is dropped.
    """

    __slots__ = (
        "attempts",
        "buffered_bytes",
        "error",
        "fetch_offset",
        "high_watermark",
        "in_progress",
        "is_fetching",
        "is_paused",
        "is_ready",
        "partition",
        "position",
        "retry_at_s",
        "runs",
        "topic",
        "version",
    )

    def __init__(self, topic: str, partition: int, position: int) -> None:
        self.topic = topic
        self.partition = partition
        self.version = 0
        self.is_paused = False
        self.is_fetching = False
        self.is_ready = False  # it is in the fetcher's queue of cursors with data or an error
        self.high_watermark = -1
        self.attempts = 0
        self.retry_at_s = 0.0
        self.runs: deque[FetchedRun] = deque()
        self.error: FlyMQError | None = None
        self.buffered_bytes = 0
        self.position = self.fetch_offset = position
        self.in_progress: int | None = None  # offset of the oldest record that the user may still be processing

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def committable(self) -> int:
        """The offset to commit: a consumer that resumes here skips no record that is still being processed."""
        return self.position if self.in_progress is None else self.in_progress

    def seek(self, offset: int) -> None:
        """Continue at `offset`; drop what was prefetched."""
        self.version += 1
        self.runs.clear()
        self.buffered_bytes = 0
        self.position = self.fetch_offset = offset
        self.in_progress = None
        self.is_fetching = False
        self.error = None
        self.retry_at_s = 0.0

    def add_run(self, run: FetchedRun) -> None:
        self.runs.append(run)
        self.buffered_bytes += len(run.batches)
        self.fetch_offset = run.next_offset

    def take_run(self) -> FetchedRun:
        run = self.runs.popleft()
        self.buffered_bytes -= len(run.batches)
        return run

    def put_back(self, run: FetchedRun) -> None:
        """Put back a run that was decoded only in part."""
        self.runs.appendleft(run)
        self.buffered_bytes += len(run.batches)


class PolledRecords:
    """Decoded records of one partition while the user takes them. Updates the cursor record by record."""

    __slots__ = ("_next_offset", "_rest", "_version", "cursor")

    def __init__(self, cursor: Cursor, records: list[ConsumerRecord], next_offset: int) -> None:
        self.cursor = cursor
        self._version = cursor.version
        self._rest = iter(records)
        self._next_offset = next_offset

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield one by one; a record counts as processed when the next is requested. Iteration can be resumed."""
        cursor, version = self.cursor, self._version
        for record in self._rest:
            if cursor.version != version:
                return
            offset = record.offset
            cursor.in_progress = offset
            cursor.position = offset + 1
            yield record
        self._finish()

    def __len__(self) -> int:
        """Return how many records are left; 0 after a seek."""
        return length_hint(self._rest) if self.cursor.version == self._version else 0

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return up to `count` records, all of them in progress until `release`."""
        if self.cursor.version != self._version:
            return []
        records = list(islice(self._rest, count))
        if records:
            self.cursor.in_progress = records[0].offset
            self.cursor.position = records[-1].offset + 1
        if not length_hint(self._rest):
            self.cursor.position = self._next_offset
        return records

    def release(self) -> None:
        """The user has processed what was taken."""
        if self.cursor.version == self._version:
            self.cursor.in_progress = None

    def _finish(self) -> None:
        if self.cursor.version == self._version:
            self.cursor.in_progress = None
            self.cursor.position = self._next_offset
