"""The log of one partition on disk: append at the end, read anywhere, truncate, make durable.

A directory of segments (segments/) with what the partition remembers of its producers and aborted transactions
(producers/) and of its leaders (leader_epochs.py). recovery/open_log.py puts it together and repairs it after a crash.

No call here waits: appending is a write to the page cache. To make it durable, call `begin_sync()`, run what it returns
in a thread, and pass it to `end_sync()`; flusher.py does that for many logs at once. What else takes long, a search by
time or deleting records, is a generator of steps (host/tasks.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock

from flymq.host.disk import Disk
from flymq.host.tasks import Steps
from flymq.model.errors import (
    CorruptLog,
    FencedLeaderEpoch,
    FileVanished,
    FsyncFailed,
    NotLeader,
    OffsetOutOfRange,
    PartitionOffline,
    ResourcesExhausted,
    StorageError,
    TooManyOpenFiles,
)
from flymq.model.topic_config import TopicConfig
from flymq.record.header import NO_TIMESTAMP, BatchHeader, Buffer
from flymq.storage.batch_validation import Admitted, Appended, admit, admit_as_is, admit_marker
from flymq.storage.damage import Damage
from flymq.storage.headroom import WriteGate
from flymq.storage.leader_epochs import EpochRun, EpochsFile, LeaderEpochs
from flymq.storage.producers.aborted_transactions import AbortedTransaction, AbortedTransactions
from flymq.storage.producers.producer_state import Producers
from flymq.storage.producers.replay import apply_marker, replay
from flymq.storage.producers.snapshot import encode_snapshot
from flymq.storage.recovery.checkpoint import (
    Checkpoint,
    CleanMarker,
    Compacted,
    write_clean_marker,
    write_compacted,
)
from flymq.storage.recovery.crash_scan import RecoveryReport, cuts_before
from flymq.storage.recovery.saved_state import SavedState
from flymq.storage.retention import count_expired
from flymq.storage.segments.segment import OFFSETS_MAX, LogSlice, Segment
from flymq.storage.segments.segment_list import SegmentList
from flymq.storage.segments.time_search import SegmentsChanged, TimeSearch, load_times
from flymq.storage.segments.time_search import TimedOffset as TimedOffset
from flymq.storage.sync_point import SyncPoint as SyncPoint
from flymq.storage.sync_point import Unsynced

logger = logging.getLogger(__name__)

_DETACHED_MAX = 1000  # segments that retention drops at once, on the event loop


@dataclass(slots=True)
class LogParts:
    """What opening a log put together."""

    segments: list[Segment]
    start_offset: int
    producers: Producers
    aborted: AbortedTransactions
    epochs: LeaderEpochs
    epochs_saved: bool
    checkpoint: Checkpoint
    compacted: Compacted
    durable_offset: int
    """What the note says."""
    snapshot_offset: int
    report: RecoveryReport


class Log:
    """The batches from `start_offset` up to, not with, `end_offset`. The last segment is the one that grows."""

    def __init__(self, disk: Disk, directory: Path, config: TopicConfig, parts: LogParts) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self._segments = SegmentList(parts.segments, self._forget)
        self._gone_before = self._segments[0].base_offset
        """Segments before this offset are removed, durably: no crash brings them back."""
        self.start_offset = parts.start_offset
        self.end_offset = self._active.next_offset
        self.durable_offset = self.end_offset
        """Everything before this offset is on the disk."""
        self.producers = parts.producers
        self.epochs = parts.epochs
        self.compacted = parts.compacted
        self.recovery = parts.report
        self.failure: PartitionOffline | None = None
        self.damage = Damage()
        self.gate = WriteGate()
        """Refuses the batches of clients while the disk is full (headroom.py)."""
        self._aborted = parts.aborted
        self._unsynced = Unsynced(disk, directory, self.go_offline)
        if not parts.report.clean:
            self._unsynced.note_change()
        self._epochs_file = EpochsFile(disk, directory)
        if not parts.epochs_saved:
            self._note_epochs(is_in_headers=True)
        self._index_lock = Lock()
        self._indexes_saved = 0  # number of the last change that saved indexes of the active segment cover
        self._saved = SavedState(
            disk,
            directory,
            self._unsynced,
            parts.checkpoint,
            durable_offset=parts.durable_offset,
            snapshot_offset=parts.snapshot_offset,
        )
        self._removals_left: list[Callable[[], None]] = []
        self._note_aborted()

    @property
    def _active(self) -> Segment:
        return self._segments.active

    @property
    def segments(self) -> list[Segment]:
        return list(self._segments)

    @property
    def recovery_offset(self) -> int:
        """Segments before this offset are durable; opening after a crash does not scan them."""
        return self._saved.checkpoint.recovery_offset

    @property
    def truncations(self) -> int:
        """How often the log was truncated. Work that was planned before a truncation must not be finished after it."""
        return self._saved.truncations

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._segments.size

    def go_offline(self, error: StorageError) -> None:
        """Refuse writes from here on. Reads go on as far as the disk lets them."""
        if isinstance(error, FsyncFailed):
            self._unsynced.fail(error)
        if self.failure is None and not isinstance(error, FsyncFailed):  # that one is logged when the broker stops
            logger.error("%s is offline: %s. %s", self.name, error.message, error.hint)
        self.failure = PartitionOffline(f"{self.name} is offline: {error.message}", hint=error.hint)

    @property
    def name(self) -> str:
        """The partition, as its directory tells."""
        return f"{self.directory.parent.name.partition('~')[0]}-{self.directory.name}"

    def retire(self) -> None:
        """The topic was deleted: no work is begun any more, and running syncs and checkpoints write nothing."""
        self.failure = self.failure or PartitionOffline(f"{self.directory} was deleted")
        self._unsynced.stop()

    def wait_for_syncs(self) -> None:
        """Return when no other thread writes to the directory of this log, once it is retired. In a thread."""
        self._unsynced.wait()

    def _check_online(self) -> None:
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def _offline_on_failure(self) -> Iterator[None]:
        """Take the log offline when a change fails halfway: only opening it again repairs it."""
        self._check_online()
        try:
            yield
        except StorageError as error:
            self.go_offline(error)
            raise

    @contextmanager
    def _retried_when_exhausted(self) -> Iterator[None]:
        """Like `_offline_on_failure`, for steps that leave everything as it was when the disk is full.

        The same holds when there is no free file descriptor: the next call tries again.
        """
        self._check_online()
        try:
            yield
        except ResourcesExhausted as error:
            self.gate.report(error)
            raise
        except StorageError as error:
            self.go_offline(error)
            raise

    # --- append

    def append(self, batches: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        """Give a client's batches the next offsets and write them; a repeat of a known batch is only answered."""
        # Three calls less on the hot path.
        if self.failure is not None or leader_epoch < self.epochs.current or self.gate.refusal is not None:
            self._check_online()
            self._check_epoch(leader_epoch)
            self.gate.check()
        admitted = admit(
            batches,
            next_offset=self.end_offset,
            leader_epoch=leader_epoch,
            producers=self.producers,
            config=self.config,
            now_ms=now_ms,
        )
        return admitted if isinstance(admitted, Appended) else self._write(admitted, now_ms)

    def append_as_is(self, batches: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write batches that have their offsets from the leader of `leader_epoch` or a backup, byte for byte."""
        self._check_online()
        self._check_epoch(leader_epoch)
        last_epoch = self.epochs.epoch_of(self.end_offset - 1)
        admitted = admit_as_is(batches, next_offset=self.end_offset, last_epoch=last_epoch, leader_epoch=leader_epoch)
        return self._write(admitted, now_ms)

    def append_marker(self, batch: Buffer, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write the end of a transaction."""
        self._check_online()
        self._check_epoch(leader_epoch)
        return self._write(admit_marker(batch, next_offset=self.end_offset, leader_epoch=leader_epoch), now_ms)

    def _write(self, admitted: Admitted, now_ms: int) -> Appended:
        headers = admitted.headers
        first, last = headers[0], headers[-1]
        assert first.base_offset >= self.end_offset, f"offset {first.base_offset} does not follow {self.end_offset}"
        try:
            segment = self._segment_for(admitted, now_ms)
            segment.append(admitted.pieces, headers)
            if not first.leader_epoch == last.leader_epoch == self.epochs.current:
                self._observe_epochs(headers)
            self._unsynced.note_file(segment.file)
            self.end_offset = end_offset = last.next_offset
            if first.producer_id >= 0 or len(headers) > 1:
                self._remember(segment, admitted)
        except ResourcesExhausted as error:  # nothing was appended: the next append tries again
            self.gate.report(error)
            raise
        except StorageError as error:
            self.go_offline(error)
            raise
        append_time_ms = first.max_timestamp if first.has_log_append_time else NO_TIMESTAMP
        return Appended(first.base_offset, end_offset - 1, append_time_ms)

    def begin_epoch(self, epoch: int) -> None:
        """Note a leader at its election, before it has written anything. The next sync makes it durable."""
        self._check_online()
        self._check_epoch(epoch)
        if epoch > self.epochs.current:
            is_new = self.end_offset == 0 and not self.epochs.starts
            self.epochs.begin(epoch, self.end_offset)
            if not is_new:  # nothing was ever in a new log, and who leads it next notes the same again
                self._note_epochs(is_in_headers=False)

    def _check_epoch(self, leader_epoch: int) -> None:
        if leader_epoch < self.epochs.current:
            raise FencedLeaderEpoch(
                f"{self.name} has a leader of epoch {self.epochs.current}, this one has {leader_epoch}"
            )

    def _observe_epochs(self, headers: list[BatchHeader]) -> None:
        """Take the epochs of batches just written into the history."""
        before, end_offset = self.epochs.starts, self.end_offset
        for header in headers:
            self.epochs.observe(EpochRun(header.leader_epoch, end_offset, header.base_offset, header.next_offset))
            end_offset = header.next_offset
        if self.epochs.starts != before:
            self._note_epochs(is_in_headers=True)

    def _note_epochs(self, *, is_in_headers: bool) -> None:
        """Leader epochs changed: save them before the next checkpoint, or in the next sync if no header has them."""
        self._unsynced.note_change()
        self._epochs_file.note_change(self._unsynced.change, is_in_headers=is_in_headers)

    def _segment_for(self, admitted: Admitted, now_ms: int) -> Segment:
        """Return the active segment, or a new one when the active one is full or old."""
        active = self._segments[-1]
        if active.size == 0 or active.written_since_ms is None:
            active.written_since_ms = now_ms
        config = self.config
        if active.size and (
            active.size + admitted.size > config.segment_bytes
            or now_ms - active.written_since_ms >= config.segment_ms
            or admitted.headers[-1].last_offset - active.base_offset > OFFSETS_MAX
        ):
            self.roll()
            active = self._segments[-1]
            active.written_since_ms = now_ms
        return active

    def roll(self) -> None:
        """Seal the active segment and begin the next one."""
        with self._retried_when_exhausted(), self._index_lock:
            active = self._active
            active.cut_torn()
            self._begin_segment(self.end_offset)
            with suppress(ResourcesExhausted):  # then its indexes stay in memory
                active.seal()
            self._segments.touch(active)  # so that its file is closed some time

    def _begin_segment(self, base_offset: int) -> None:
        interval = self.config.index_interval_bytes
        self._segments.begin(self.disk, self.directory, base_offset, index_interval_bytes=interval)
        self._unsynced.note_names()

    def _remember(self, segment: Segment, admitted: Admitted) -> None:
        """Apply batches that are written to the producer state and the list of aborts."""
        position = 0
        for header in admitted.headers:
            if header.producer_id >= 0:
                if not header.is_control:
                    self.producers.apply(header)
                elif (entry := apply_marker(header, admitted.batch(position, header), self.producers)) is not None:
                    self._aborted.add(segment.base_offset, entry)
                    self._note_aborted()
            position += header.size

    def _note_aborted(self) -> None:
        """Include the files of aborted transactions in the next sync."""
        for file in self._aborted.take_written():
            self._unsynced.note_file(file)
            self._unsynced.note_names()

    # --- read

    def read(self, offset: int, *, bytes_max: int, end_offset: int | None = None) -> LogSlice | None:
        """Return whole batches from the one that holds `offset`, at least one; None when none lies before the end."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(f"the log holds the offsets {self.start_offset} to {self.end_offset}, not {offset}")
        end = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        if offset >= end:
            return None
        try:
            segments = self._segments
            for segment in segments[segments.position_of(offset) :]:
                segments.touch(segment)
                if (found := segment.slice(offset, bytes_max=bytes_max, end_offset=end)) is not None:
                    return found
                if segment.find(offset) is not None:
                    return None  # it lies after the end
                self._check_gap(segment)
        except FileVanished as error:
            self.go_offline(error)
            raise
        except CorruptLog as error:
            self.damage.note(error)
            raise
        except TooManyOpenFiles as error:
            self.gate.report(error)
            raise
        return None

    def _check_gap(self, segment: Segment) -> None:
        """A segment ends before the next one begins: right after compaction, data loss otherwise."""
        if segment is not self._active and segment.next_offset > self.compacted.gaps_end:
            raise FileVanished(f"{self.directory}: batches before offset {segment.next_offset} are missing")

    def _forget(self, segment: Segment) -> None:
        """A segment is removed, replaced or cut."""
        self.damage.forget(segment.path)
        if segment.is_open:
            self._unsynced.forget(segment.file)

    @contextmanager
    def _noting_damage(self) -> Iterator[None]:
        try:
            yield
        except FileVanished as error:
            self.go_offline(error)
            raise
        except CorruptLog as error:
            self.damage.note(error)
            raise

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have records in [start, end)."""
        return self._aborted.between(start_offset, end_offset)

    def find_time(self, timestamp: int) -> Steps[TimedOffset | None]:
        """Return the first record of this time or later."""
        return self._search(lambda search: search.find(timestamp))

    def find_latest_time(self) -> Steps[TimedOffset | None]:
        """Return the first record that has the latest time of all."""
        return self._search(lambda search: search.find_latest())

    def _search(self, steps_of: Callable[[TimeSearch], Steps[TimedOffset | None]]) -> Steps[TimedOffset | None]:
        """Search by time; again when segments were removed or replaced meanwhile, which is rare."""
        yield from self.load_times()
        segments = self._segments
        while True:
            is_current = partial(self._has_changes, segments.changes)
            search = TimeSearch(list(segments), self.start_offset, segments.touch, is_current)
            with suppress(SegmentsChanged), self._noting_damage():
                return (yield from steps_of(search))

    def _has_changes(self, count: int) -> bool:
        return self._segments.changes == count

    # --- truncate and delete

    def truncate(self, end_offset: int) -> None:
        """Drop every batch that holds this offset or a later one, as a follower does to match its leader."""
        with self._offline_on_failure():
            if end_offset < self.end_offset:
                self._truncate(max(end_offset, self.start_offset))

    def _truncate(self, end_offset: int) -> None:
        at = self._segments.position_of(end_offset)
        kept = self._segments[at]
        found = kept.find(end_offset)
        position = kept.size if found is None else found[0]
        self._saved.begin_truncation(self.start_offset, kept.base_offset, position)
        with self._index_lock:  # indexes that a late thread holds are of other batches
            self._unsynced.note_change()
            self._indexes_saved = self._unsynced.change
        for segment in reversed(self._segments.cut_after(at)):
            segment.remove()
        kept.truncate(position)
        # Durable at once: truncated batches that came back after a power cut would look valid.
        self._unsynced.fsync(kept.file.sync)
        self._unsynced.sync_names()
        self._unsynced.note_change()
        self.end_offset = kept.next_offset
        self.durable_offset = min(self.durable_offset, self.end_offset)
        self._saved.end_truncation(self.durable_offset)
        # The file may hold the old history for a while: the checkpoint was lowered, so opening scans from here and
        # corrects it.
        self.epochs.cut_end(self.end_offset)
        self._note_epochs(is_in_headers=True)
        if self.compacted.gaps_end > self.end_offset:
            reached = min(self.compacted.end_offset, self.end_offset)
            self.note_compacted(Compacted(reached, gaps_end=self.end_offset))
        # Only now snapshots of the truncated batches may go: had the batches come back, they would have been needed.
        replayed = replay(self.disk, self.directory, self._segments, self.end_offset, self.compacted.gaps_end)
        self.producers, self._aborted = replayed.producers, replayed.aborted
        self._saved.snapshot_offset = replayed.snapshot_offset
        self._note_aborted()
        self.restart_if_empty()
        self._check_offsets()

    def restart_at(self, start_offset: int) -> None:
        """Drop everything and continue at a later offset, as a follower does when its leader has deleted the rest."""
        assert start_offset > self.end_offset, f"{self.name} ends at {self.end_offset}, not before {start_offset}"
        with self._offline_on_failure():
            self.start_offset = start_offset
            self.restart_if_empty()
            self.durable_offset = self.end_offset
            self._check_offsets()

    def restart_if_empty(self) -> None:
        """Continue at the start offset when all batches lie before it; the last one may even end before it."""
        if self.end_offset < self.start_offset or (self.end_offset == self.start_offset and self._active.size):
            self._begin_segment(self.start_offset)
            self.end_offset = self.start_offset
            self._drop_before_start()

    def delete_before(self, start_offset: int) -> Steps[None]:
        """Make `start_offset` the first offset; segments that lie wholly before it are removed.

        Nothing else that removes or replaces segments may run meanwhile; appends and checkpoints may.
        """
        if start_offset > self.end_offset:
            raise OffsetOutOfRange(f"{self.name} ends at offset {self.end_offset}, before {start_offset}")
        with self._retried_when_exhausted():
            if start_offset <= self._saved.checkpoint.start_offset:
                return  # what retention did is not enough: a crash may undo it
            if start_offset == self.end_offset and self._active.size:
                self.roll()
            # A log must never end, after a power cut, before it begins; and what producers did in the segments that
            # go must be in a snapshot.
            point = self.begin_checkpoint() or self.begin_sync()
            yield point.run
            self.end_sync(point)
            if point.truncations != self.truncations:
                raise NotLeader(f"{self.name} was truncated while its records were deleted")
            self.start_offset = max(start_offset, self.start_offset)
            self._check_offsets()
            gone = sum(segment.next_offset <= self.start_offset for segment in self._segments.sealed)
            yield self._detach(gone, new_start=self.start_offset)
            self._cut_epochs_start()

    def _drop_before_start(self) -> None:
        """Remove the segments that lie wholly before the start, so that there is never one while the log is open."""
        gone = [segment for segment in self._segments.sealed if segment.next_offset <= self.start_offset]
        if gone:
            self._save_now()  # what the producers did there must be in a snapshot
            removal = self._detach(len(gone))
            with suppress(ResourcesExhausted):  # then retention removes the files
                removal()
            self._cut_epochs_start()

    def load_times(self) -> Steps[None]:
        """Load the latest time of each sealed segment, for `retain` and for compaction."""
        return load_times(self._segments.sealed)

    def retain(self, now_ms: int) -> Callable[[], None] | None:
        """Drop segments that are too old or too many. Return the removal of their files, to run in a thread.

        What the producers did there must be in a snapshot first, so a segment after the last checkpoint stays. One call
        drops a limited number: repeat it until there is no removal.
        """
        with self._retried_when_exhausted():
            active = self._active
            if active.size and count_expired([active], self.config, now_ms) == 1:
                self.roll()
            expired = count_expired(self._segments.sealed, self.config, now_ms, beside_bytes=self._active.size)
            expired = min(expired, _DETACHED_MAX)
            while expired and self._segments[expired - 1].next_offset > self._saved.snapshot_offset:
                expired -= 1
            removals, self._removals_left = self._removals_left, []
            if expired:
                removals.append(self._detach(expired))
            return partial(self._run_removals, removals) if removals else None

    def _detach(self, count: int, new_start: int = 0) -> Callable[[], None]:
        """Drop the oldest segments; return what removes their files. A crash before that only brings them back.

        The log then starts at `new_start` durably, or where the segments that are left begin. If the disk is too full
        for the note of the new start, `retain` tries the removal again.
        """
        gone = self._segments.drop_first(count)
        self.start_offset = max(self.start_offset, self._segments[0].base_offset)
        self._check_offsets()
        self._cut_epochs_start()
        aborted = [path for each in gone if (path := self._aborted.forget_segment(each.base_offset)) is not None]
        end_offset = gone[-1].next_offset if gone else self._gone_before
        new_start = max(new_start, end_offset)

        def remove() -> None:
            for segment in gone:
                segment.remove_indexes()  # they can be rebuilt, and on a full disk they make room for what follows
            # The new start comes first: a power cut may bring back any of these files, with gaps between them.
            try:
                self._saved.raise_start(new_start)
            except ResourcesExhausted:
                self._removals_left.append(remove)
                raise
            self._gone_before = end_offset
            for segment in gone:
                segment.remove()
            for path in (*aborted, *cuts_before(self.disk, self.directory, end_offset)):
                self.disk.remove(path)

        return remove

    def _run_removals(self, removals: list[Callable[[], None]]) -> None:
        while removals:
            try:
                removals.pop(0)()
            except ResourcesExhausted:
                self._removals_left += removals
                raise

    def _cut_epochs_start(self) -> None:
        """Forget the leaders of segments that are gone. Opening does the same, so this needs no sync."""
        self.epochs.cut_start(self._gone_before)
        self._epochs_file.note_change(self._unsynced.change, is_in_headers=True)

    def _check_offsets(self) -> None:
        """What must hold after every change of them."""
        assert self.start_offset <= self.end_offset, f"starts at {self.start_offset}, ends at {self.end_offset}"
        assert self.durable_offset <= self.end_offset, f"durable to {self.durable_offset}, ends at {self.end_offset}"

    # --- compaction

    def note_compacted(self, compacted: Compacted) -> None:
        self._unsynced.fsync(partial(write_compacted, self.disk, self.directory, compacted))
        self.compacted = compacted

    @contextmanager
    def replacing_segments(self, base_offsets: list[int]) -> Iterator[None]:
        """While the files of these segments are exchanged for compacted ones, reads go on in the old files.

        An open file is not affected by a rename. But a segment that opened its file now might find the new batches,
        where its index has the old positions.
        """
        old = [segment for segment in self._segments if base_offsets[0] <= segment.base_offset <= base_offsets[-1]]
        for segment in old:
            segment.hold_files()
        yield
        assert old[0] in self._segments, "segments were removed while they were being replaced"
        self._replace_segments(base_offsets, old)

    def _replace_segments(self, base_offsets: list[int], old: list[Segment]) -> None:
        """Replace these segments by the compacted one, which now has the name of the first."""
        compacted = Segment.open_sealed(
            self.disk,
            self.directory,
            old[0].base_offset,
            next_offset=old[-1].next_offset,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        self._segments.replace(old, compacted)
        self._aborted.merge(base_offsets)

    def forget_aborted_before(self, end_offset: int) -> None:
        """Forget aborted transactions whose records compaction has removed."""
        self._aborted.forget_before(end_offset)

    # --- make durable

    @property
    def is_dirty(self) -> bool:
        """Whether anything has changed since the last checkpoint."""
        return self._unsynced.change != self._saved.change

    @property
    def is_durable(self) -> bool:
        """Whether everything appended and every epoch begun so far is on the disk."""
        return self.durable_offset >= self.end_offset and not self._epochs_file.is_required

    def begin_sync(self) -> SyncPoint:
        """Return the work after which everything appended and every epoch begun so far is on the disk."""
        return self._begin_sync(save_epochs=self._epochs_file.is_required)

    def _begin_sync(self, *, save_epochs: bool) -> SyncPoint:
        write_epochs = None
        if save_epochs:
            write_epochs = partial(self._epochs_file.write, self._unsynced.change, self.epochs.starts)
        point = self._unsynced.begin(self.end_offset, self.truncations, write_epochs)
        point.saves_epochs = save_epochs
        point.steps.append(partial(self._saved.note_durable, point))
        return point

    def end_sync(self, point: SyncPoint) -> None:
        """The work of `begin_sync` is done."""
        self._unsynced.end(point)
        if point.saves_epochs:
            self._epochs_file.end(point.change)
        if point.truncations == self.truncations:
            self.durable_offset = max(self.durable_offset, point.end_offset)
            self._check_offsets()

    def _save_now(self) -> None:
        """Make everything durable and save a checkpoint, synchronously."""
        point = self.begin_checkpoint() or self.begin_sync()
        point.run()
        self.end_sync(point)

    def begin_checkpoint(self) -> SyncPoint | None:
        """Return the work after which a crash costs no scan of what is there now; None when nothing has changed."""
        if not self.is_dirty or self.failure is not None:
            return None
        self._unsynced.fsync(self._aborted.write_missing)
        save_indexes = partial(
            self._save_indexes, self._active, self._unsynced.change, self._active.begin_save_indexes()
        )
        snapshot = encode_snapshot(self.producers, self._aborted.mark(self._active.base_offset))
        checkpoint = Checkpoint(self.start_offset, self._active.base_offset, self._active.size)
        # The history of leaders comes first: headers before the checkpoint are not looked at again.
        point = self._begin_sync(save_epochs=self._epochs_file.is_unsaved)
        point.steps += [save_indexes, partial(self._saved.save, point, snapshot, checkpoint)]
        return point

    def _save_indexes(self, segment: Segment, change: int, save: Callable[[], None]) -> None:
        """Save the indexes of the active segment, in a thread, which may be late: newer ones may be there."""
        with self._index_lock:
            if segment is self._active and change >= self._indexes_saved:  # when it was sealed, they were saved
                with suppress(ResourcesExhausted):  # they can be built again
                    save()
                    self._indexes_saved = change

    def release_sealed(self) -> None:
        """Close the files that are held open for readers of sealed segments."""
        self._segments.release_sealed()

    def release_files(self) -> None:
        """Close all files: the log is closed, or its topic deleted."""
        self._segments.release_files()
        self._unsynced.forget_all()
        self._aborted.release_files()

    def close(self) -> None:
        """Make everything durable and write the marker of a clean shutdown. A log that failed writes none."""
        if self.failure is not None:
            return
        self._active.cut_torn()
        self._save_now()
        if self._unsynced.is_stopped:
            return  # it took too long, and the broker waits no more
        write_clean_marker(
            self.disk, self.directory, CleanMarker(self.end_offset, self._active.base_offset, self._active.size)
        )
        self.release_files()
