"""The log of one partition on disk: appends at the end, reads anywhere, loses nothing it promised.

A directory of segments (segment.py) with what makes opening quick (checkpoint.py), what the partition remembers of its
producers (producers.py), its aborted transactions (aborted.py) and its leaders (epochs.py). All of that can be built
again from the batches alone; opening.py does.

No call here waits: appending is a write to the page cache. To make it durable, take `begin_sync()`, run it in a thread,
and hand it back to `end_sync()`; flusher.py does that for many logs at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from flymq.host.disk import Disk, File, write_aside
from flymq.model.errors import FileVanished, OffsetOutOfRange, PartitionOffline, StorageError
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import parse_batch
from flymq.record.header import BatchHeader, Buffer
from flymq.storage.aborted import AbortedTransaction, AbortedTransactions
from flymq.storage.admission import Admitted, Appended, admit, admit_as_is, admit_marker
from flymq.storage.checkpoint import Checkpoint, CleanMarker, write_checkpoint, write_clean_marker
from flymq.storage.epochs import LeaderEpochs
from flymq.storage.producers import SNAPSHOT_SUFFIX, Producers
from flymq.storage.recovery import RecoveryReport
from flymq.storage.replay import remember_marker, replay_producers, snapshot_names
from flymq.storage.retention import count_expired
from flymq.storage.segment import LogSlice, Segment, segment_name

_OFFSETS_PER_SEGMENT_MAX = (1 << 31) - 1
_SNAPSHOTS_KEPT = 2


class TimedOffset(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(slots=True)
class SyncPoint:
    """Once `run` has returned, in whatever thread, everything before `end_offset` is on the disk."""

    end_offset: int
    steps: list[Callable[[], None]] = field(default_factory=list)

    def run(self) -> None:
        for step in self.steps:
            step()


@dataclass(slots=True)
class LogParts:
    """What opening a log put together."""

    segments: list[Segment]
    start_offset: int
    producers: Producers
    aborted: AbortedTransactions
    epochs: LeaderEpochs
    checkpoint: Checkpoint
    report: RecoveryReport


class Log:
    """The batches from `start_offset` up to, not with, `end_offset`. The last segment is the one that grows."""

    def __init__(self, disk: Disk, directory: Path, config: TopicConfig, parts: LogParts) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self._segments = parts.segments
        self.start_offset = parts.start_offset
        self.end_offset = self._active.next_offset
        self.durable_offset = self.end_offset
        """Everything before this offset is on the disk."""
        self.producers = parts.producers
        self.epochs = parts.epochs
        self.recovery = parts.report
        self.failure: PartitionOffline | None = None
        self._aborted = parts.aborted
        self._unsynced: dict[Path, File] = {}
        self._names_unsynced = False
        self._changed = not parts.report.clean
        # A checkpoint is written in a thread. Whoever changes on the loop what a checkpoint says raises the generation,
        # and a thread that comes late with an older one writes nothing.
        self._checkpoint_lock = Lock()
        self._checkpoint = parts.checkpoint
        self._generation = 0

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    @property
    def segments(self) -> list[Segment]:
        return list(self._segments)

    @property
    def recovery_offset(self) -> int:
        """Segments before this offset are on the disk, whole, and no crash makes opening look at them."""
        return self._checkpoint.recovery_offset

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    # --- append

    def append(self, batches: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        """Give a client's batches the next offsets and write them; a repeat of a known batch is only answered."""
        self._check_online()
        admitted = admit(
            batches,
            next_offset=self.end_offset,
            leader_epoch=leader_epoch,
            producers=self.producers,
            config=self.config,
            now_ms=now_ms,
        )
        return admitted if isinstance(admitted, Appended) else self._write(admitted, now_ms)

    def append_as_is(self, batches: Buffer, *, now_ms: int) -> Appended:
        """Write batches that have their offsets from the leader or a backup, byte for byte."""
        self._check_online()
        return self._write(admit_as_is(batches, next_offset=self.end_offset), now_ms)

    def append_marker(self, batch: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write the end of a transaction."""
        self._check_online()
        return self._write(admit_marker(batch, next_offset=self.end_offset, leader_epoch=leader_epoch), now_ms)

    def _write(self, admitted: Admitted, now_ms: int) -> Appended:
        headers = admitted.headers
        try:
            for header in headers:
                if header.leader_epoch > self.epochs.current:
                    self.epochs.begin(header.leader_epoch, header.base_offset)
            segment = self._segment_for(admitted, now_ms)
            segment.append(admitted.pieces, headers)
        except StorageError as error:
            self.go_offline(error)
            raise
        self._unsynced[segment.path] = segment.file
        self._changed = True
        self.end_offset = headers[-1].next_offset
        for header in headers:
            if header.producer_id >= 0:
                self._remember(segment, header, admitted)
        append_time_ms = headers[0].max_timestamp if headers[0].has_log_append_time else -1
        return Appended(headers[0].base_offset, headers[-1].last_offset, append_time_ms)

    def _segment_for(self, admitted: Admitted, now_ms: int) -> Segment:
        """Return the active segment, or a new one when the active one is full or old."""
        active = self._active
        if active.size == 0:
            active.written_since_ms = now_ms
            return active
        if active.written_since_ms is None:
            active.written_since_ms = now_ms
        if (
            active.size + admitted.size > self.config.segment_bytes
            or now_ms - active.written_since_ms >= self.config.segment_ms
            or admitted.headers[-1].last_offset - active.base_offset > _OFFSETS_PER_SEGMENT_MAX
        ):
            self.roll()
            self._active.written_since_ms = now_ms
        return self._active

    def roll(self) -> None:
        """Seal the active segment and begin the next one."""
        self._active.seal()
        self._segments.append(
            Segment.create(
                self.disk, self.directory, self.end_offset, index_interval_bytes=self.config.index_interval_bytes
            )
        )
        self._names_unsynced = True

    def _remember(self, segment: Segment, header: BatchHeader, admitted: Admitted) -> None:
        """Take a producer's batch into the memory of producers and aborts."""
        if not header.is_control:
            self.producers.apply(header)
            return
        file = remember_marker(header, b"".join(admitted.pieces), self.producers, self._aborted, segment.base_offset)
        if file is not None:
            self._unsynced[file.path] = file

    def go_offline(self, error: StorageError) -> None:
        """Refuse writes from here on. What the failed write left behind the good end is cut off, now or at opening."""
        self.failure = PartitionOffline(f"{self.directory.name} is offline: {error.message}", hint=error.hint)
        try:
            self._active.file.truncate(self._active.size)
        except StorageError:
            return

    def _check_online(self) -> None:
        if self.failure is not None:
            raise self.failure

    # --- read

    def read(self, offset: int, *, bytes_max: int, end_offset: int | None = None) -> LogSlice | None:
        """Return whole batches from the one that holds `offset`, at least one; None when none lies before the end."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"{self.directory.name} holds the offsets {self.start_offset} to {self.end_offset}, not {offset}"
            )
        end = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        if offset >= end:
            return None
        try:
            for segment in self._segments[self._position_of(offset) :]:
                found = segment.slice(offset, bytes_max=bytes_max, end_offset=end)
                if found is not None:
                    return found
        except FileVanished as error:
            self.go_offline(error)
            raise
        return None

    def _position_of(self, offset: int) -> int:
        """Return the index of the segment in whose range `offset` falls."""
        if offset >= self._segments[-1].base_offset:
            return len(self._segments) - 1
        return max(0, bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1)

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have records in [start, end)."""
        return self._aborted.between(start_offset, end_offset)

    def find_time(self, timestamp: int) -> TimedOffset | None:
        """Return the first record of this time or later."""
        for segment in self._segments:
            found = segment.find_time(timestamp) if segment.next_offset > self.start_offset else None
            if found is not None:
                position, header = found
                for record in parse_batch(segment.file.pread(header.size, position)):
                    if record.timestamp_ms >= timestamp and record.offset >= self.start_offset:
                        return TimedOffset(record.offset, record.timestamp_ms, header.leader_epoch)
        return None

    def find_latest_time(self) -> TimedOffset | None:
        """Return the first record that has the latest time of all."""
        latest = max((segment.max_timestamp for segment in self._segments), default=-1)
        return self.find_time(latest) if latest >= 0 else None

    # --- shorten

    def truncate(self, end_offset: int) -> None:
        """Drop every batch that holds this offset or a later one, as a follower does to match its leader."""
        self._check_online()
        if end_offset >= self.end_offset:
            return
        end_offset = max(end_offset, self.start_offset)
        at = self._position_of(end_offset)
        kept = self._segments[at]
        found = kept.find(end_offset)
        position = kept.size if found is None else found[0]
        recovery = min((kept.base_offset, position), self._checkpoint.recovery)
        self._write_checkpoint(Checkpoint(self.start_offset, *recovery))
        for segment in reversed(self._segments[at + 1 :]):
            segment.remove()
            self._aborted.remove(segment.base_offset)
            self._unsynced.pop(segment.path, None)
        del self._segments[at + 1 :]
        kept.truncate(position)
        self.end_offset = kept.next_offset
        self.durable_offset = min(self.durable_offset, self.end_offset)
        # On the disk at once: batches that come back after a power cut would be taken for good ones.
        kept.file.sync()
        self.disk.sync_directory(self.directory)
        self._changed = True
        self.epochs.cut_end(self.end_offset)
        self.producers = replay_producers(self.disk, self.directory, self._segments, self._aborted, self.end_offset)

    def delete_before(self, start_offset: int) -> None:
        """Let the log begin at `start_offset`; segments that lie wholly before it are removed."""
        self._check_online()
        if start_offset > self.end_offset:
            raise OffsetOutOfRange(f"{self.directory.name} ends at offset {self.end_offset}, before {start_offset}")
        if start_offset <= self.start_offset:
            return
        if start_offset == self.end_offset and self._active.size:
            self.roll()
        point = self.begin_sync()
        point.run()  # a log must never end, after a power cut, before it begins
        self.end_sync(point)
        self.start_offset = start_offset
        self._write_checkpoint(Checkpoint(start_offset, *self._checkpoint.recovery))
        self.drop_before_start()

    def drop_before_start(self) -> None:
        """Remove the segments that lie wholly before the start."""
        gone = [segment for segment in self._segments[:-1] if segment.next_offset <= self.start_offset]
        self._detach(len(gone))()

    def retain(self, now_ms: int) -> Callable[[], None] | None:
        """Let go of segments that are too old or too many. Return the removal of their files, to run in a thread."""
        self._check_online()
        active = self._active
        if active.size and count_expired([active], self.config, now_ms) == 1:
            self.roll()
        expired = count_expired(self._segments[:-1], self.config, now_ms, beside_bytes=self._active.size)
        return self._detach(expired) if expired else None

    def _detach(self, count: int) -> Callable[[], None]:
        """Forget the oldest segments; return what removes their files. A crash before it only brings them back."""
        gone = self._segments[:count]
        del self._segments[:count]
        self.start_offset = max(self.start_offset, self._segments[0].base_offset)
        self.epochs.cut_start(self.start_offset)
        for segment in gone:
            self._unsynced.pop(segment.path, None)
            self._aborted.remove(segment.base_offset)

        def remove() -> None:
            if gone:
                self.disk.sync_directory(self.directory)  # the name of the segment that goes on must outlive these
            for segment in gone:
                segment.remove()

        return remove

    def replace_segments(self, base_offsets: list[int]) -> None:
        """Take in the compacted segment that now has the first of these names, for those it was made from."""
        old = [segment for segment in self._segments if base_offsets[0] <= segment.base_offset <= base_offsets[-1]]
        at = self._segments.index(old[0])
        self._segments[at : at + len(old)] = [
            Segment.open_sealed(
                self.disk,
                self.directory,
                old[0].base_offset,
                next_offset=old[-1].next_offset,
                index_interval_bytes=self.config.index_interval_bytes,
            )
        ]
        self._aborted.merge(base_offsets)

    def forget_aborted_before(self, end_offset: int) -> None:
        """Forget aborted transactions whose records compaction has removed."""
        self._aborted.forget_before(end_offset)

    # --- make durable

    def begin_sync(self) -> SyncPoint:
        """Return the work after which everything appended so far is on the disk."""
        point = SyncPoint(self.end_offset, [file.sync for file in self._unsynced.values()])
        if self._names_unsynced:
            point.steps.append(partial(self.disk.sync_directory, self.directory))
        self._unsynced.clear()
        self._names_unsynced = False
        return point

    def end_sync(self, point: SyncPoint) -> None:
        """Take note that the work of `begin_sync` is done."""
        self.durable_offset = max(self.durable_offset, min(point.end_offset, self.end_offset))

    def begin_checkpoint(self) -> SyncPoint | None:
        """Return the work after which a crash costs no scan of what is there now; None when nothing has changed."""
        if not self._changed or self.failure is not None:
            return None
        self._changed = False
        point = self.begin_sync()
        # Everything is put into bytes here, on the loop; the thread only writes them.
        files = [*self._active.index_files(), self._snapshot_file()]
        checkpoint = Checkpoint(self.start_offset, self._active.base_offset, self._active.size)
        point.steps.append(partial(self._save, self._generation, files, checkpoint))
        return point

    def close(self) -> None:
        """Make everything durable and leave the marker of an orderly end. A log that failed leaves none."""
        if self.failure is not None:
            return
        if (point := self.begin_checkpoint()) is not None:
            point.run()
            self.end_sync(point)
        write_clean_marker(
            self.disk, self.directory, CleanMarker(self.end_offset, self._active.base_offset, self._active.size)
        )

    def _snapshot_file(self) -> tuple[Path, bytes]:
        return self.directory / segment_name(self.end_offset, SNAPSHOT_SUFFIX), self.producers.to_bytes()

    def _save(self, generation: int, files: list[tuple[Path, bytes]], checkpoint: Checkpoint) -> None:
        with self._checkpoint_lock:
            if generation != self._generation:
                return
            for path, content in files:
                write_aside(self.disk, path, content)
            write_checkpoint(self.disk, self.directory, checkpoint)
            self._checkpoint = checkpoint
            for name in snapshot_names(self.disk, self.directory)[:-_SNAPSHOTS_KEPT]:
                self.disk.remove(self.directory / name)

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        with self._checkpoint_lock:
            self._generation += 1
            write_checkpoint(self.disk, self.directory, checkpoint)
            self._checkpoint = checkpoint
