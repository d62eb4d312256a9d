"""What a log writes down so that opening it again is quick.

checkpoint    JSON {"start_offset", "recovery_offset", "recovery_position"}: where the log begins, and up to where
              it is known to be on the disk, whole. Replaced whole.
clean         JSON {"end_offset", "segment", "size"}: the log was closed in order and ends so. It is taken away at
              opening; one that outlived a crash no longer matches the file's size and is not believed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from flymq.host.disk import Disk, replace_file, write_aside

CHECKPOINT_NAME = "checkpoint"
CLEAN_NAME = "clean"


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


Note = TypeVar("Note", Checkpoint, CleanMarker)


def read_checkpoint(disk: Disk, directory: Path) -> Checkpoint:
    """Return the last checkpoint; the beginning of time when there is none that can be read."""
    return _read(disk, directory / CHECKPOINT_NAME, Checkpoint) or Checkpoint()


def write_checkpoint(disk: Disk, directory: Path, checkpoint: Checkpoint) -> None:
    replace_file(disk, directory / CHECKPOINT_NAME, msgspec.json.encode(checkpoint))


def take_clean_marker(disk: Disk, directory: Path) -> CleanMarker | None:
    """Return the marker of an orderly end and remove it: from here on a crash is possible again."""
    marker = _read(disk, directory / CLEAN_NAME, CleanMarker)
    disk.remove(directory / CLEAN_NAME)
    return marker


def write_clean_marker(disk: Disk, directory: Path, marker: CleanMarker) -> None:
    """Leave the marker. Losing it costs a scan and nothing else, so it needs no fsync."""
    write_aside(disk, directory / CLEAN_NAME, msgspec.json.encode(marker))


def _read(disk: Disk, path: Path, kind: type[Note]) -> Note | None:
    if not disk.exists(path):
        return None
    try:
        return msgspec.json.decode(disk.read(path), type=kind)
    except msgspec.MsgspecError:
        return None
