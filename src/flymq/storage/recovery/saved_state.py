"""What a log has saved of its state, for the next opening: checkpoint, snapshot of the producers, durable end.

It is written in threads, which may be late. Truncating counts up `truncations` under the same lock, so that a thread
with the state from before writes nothing.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Lock

from flymq.host.disk import Disk, replace_files
from flymq.storage.producers.snapshot import snapshot_name, snapshot_offsets
from flymq.storage.recovery.checkpoint import CHECKPOINT_NAME, Checkpoint, write_checkpoint
from flymq.storage.recovery.checksummed_note import encode_note
from flymq.storage.recovery.durable_end import DurableEnd
from flymq.storage.sync_point import SyncPoint, Unsynced

_SNAPSHOTS_KEPT = 2


class SavedState:
    def __init__(
        self,
        disk: Disk,
        directory: Path,
        unsynced: Unsynced,
        checkpoint: Checkpoint,
        *,
        durable_offset: int,
        snapshot_offset: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._unsynced = unsynced
        self._durable_end = DurableEnd(disk, directory, durable_offset)
        self._lock = Lock()
        self.checkpoint = checkpoint
        self.snapshot_offset = snapshot_offset
        """What the producers did before this offset is in a snapshot."""
        self.change = 0
        """Number of the last change that the checkpoint covers."""
        self.truncations = 0

    def save(self, point: SyncPoint, snapshot: bytes, checkpoint: Checkpoint) -> None:
        """Save a checkpoint and a snapshot of the producers, unless newer ones are there."""
        with self._lock:
            if point.truncations != self.truncations or point.change < self.change:
                return
            start_offset = max(checkpoint.start_offset, self.checkpoint.start_offset)
            checkpoint = Checkpoint(start_offset, *checkpoint.recovery)
            files = {snapshot_name(point.end_offset): snapshot, CHECKPOINT_NAME: encode_note(checkpoint)}
            self._unsynced.fsync(partial(replace_files, self._disk, self._directory, files))
            self.checkpoint = checkpoint
            self.snapshot_offset = point.end_offset
            self.change = point.change
            for offset in snapshot_offsets(self._disk, self._directory)[:-_SNAPSHOTS_KEPT]:
                self._disk.remove(self._directory / snapshot_name(offset))

    def raise_start(self, start_offset: int) -> None:
        """Save that the log starts here or later."""
        with self._lock:
            start_offset = max(start_offset, self.checkpoint.start_offset)
            self._store(Checkpoint(start_offset, *self.checkpoint.recovery))

    def note_durable(self, point: SyncPoint) -> None:
        """Everything before the end of this point is on the disk."""
        with self._lock:
            if point.truncations == self.truncations:
                self._durable_end.advance(point.end_offset)

    def begin_truncation(self, start_offset: int, base_offset: int, position: int) -> None:
        """Save, before the log is cut at a position of a segment, that opening must scan from there."""
        with self._lock:
            self.truncations += 1
            recovery = min((base_offset, position), self.checkpoint.recovery)
            self._store(Checkpoint(start_offset, *recovery))
            self._unsynced.fsync(partial(self._durable_end.lower, base_offset))  # too low is safe

    def end_truncation(self, durable_offset: int) -> None:
        with self._lock:
            self._durable_end.advance(durable_offset)

    def _store(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint at once. The lock is the caller's."""
        self._unsynced.fsync(partial(write_checkpoint, self._disk, self._directory, checkpoint))
        self.checkpoint = checkpoint
