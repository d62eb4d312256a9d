"""What makes opening a log quick and right. Each file is a note (checksummed_note.py), replaced as a whole.

checkpoint    where the log begins, and up to where it is known to be on the disk, whole
clean         the log was closed cleanly and ends here. Removed at opening; a stale one no longer matches the size of
              the file and is ignored
compacted     up to where compaction has come
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from flymq.host.disk import Disk, replace_file, write_aside
from flymq.storage.recovery.checksummed_note import encode_note, read_note

CHECKPOINT_NAME = "checkpoint"
CLEAN_NAME = "clean"
COMPACTED_NAME = "compacted"


class Checkpoint(msgspec.Struct, frozen=True):
    start_offset: int = 0
    recovery_offset: int = 0
    """Base offset of the segment from which a scan starts."""
    recovery_position: int = 0
    """Byte of that segment from which it starts."""

    @property
    def recovery(self) -> tuple[int, int]:
        return self.recovery_offset, self.recovery_position


class CleanMarker(msgspec.Struct, frozen=True):
    end_offset: int
    segment: int
    size: int


class Compacted(msgspec.Struct, frozen=True):
    end_offset: int = 0
    """Before it every key occurs once."""
    gaps_end: int = 0
    """Before it a segment may end before the next one begins. After it such a gap means lost batches."""


def read_checkpoint(disk: Disk, directory: Path) -> Checkpoint:
    """Return the last checkpoint; offset 0 when none can be read."""
    return read_note(disk, directory / CHECKPOINT_NAME, Checkpoint) or Checkpoint()


def write_checkpoint(disk: Disk, directory: Path, checkpoint: Checkpoint) -> None:
    replace_file(disk, directory / CHECKPOINT_NAME, encode_note(checkpoint))


def take_clean_marker(disk: Disk, directory: Path) -> CleanMarker | None:
    """Return the marker of a clean shutdown and remove it: from here on a crash is possible again."""
    marker = read_note(disk, directory / CLEAN_NAME, CleanMarker)
    disk.remove(directory / CLEAN_NAME)
    return marker


def write_clean_marker(disk: Disk, directory: Path, marker: CleanMarker) -> None:
    """Write the marker. Losing it costs only a scan, so it needs no fsync."""
    write_aside(disk, directory / CLEAN_NAME, encode_note(marker))


def read_compacted(disk: Disk, directory: Path) -> Compacted | None:
    return read_note(disk, directory / COMPACTED_NAME, Compacted)


def write_compacted(disk: Disk, directory: Path, compacted: Compacted) -> None:
    replace_file(disk, directory / COMPACTED_NAME, encode_note(compacted))
