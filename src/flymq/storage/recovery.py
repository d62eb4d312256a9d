"""Find out, after a crash, where a log really ends.

Scanning starts at the last checkpoint, before which everything is known to be on the disk, and checks every batch.
At the first one that is not whole there are two cases, and they must not be confused:

- *torn*: the crash took what was not yet on the disk. The file ends within the batch, or sectors were never written
  and read as zeros, or nothing valid follows. The log is cut there. What was cut off is kept aside in a file
  `<segment>.cut-<position>` and reported: nobody was promised it, but nobody should have to guess either.
- *rotten*: the batch is damaged although good batches lie behind it. Cutting would throw those away, so the log is
  not opened: the error names the file and the position, and a person decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flymq.host.disk import Disk
from flymq.model.errors import CorruptLog, InvalidBatch
from flymq.record.header import HEADER_SIZE, MAGIC, MAGIC_AT, BatchHeader, check_batch, parse_header
from flymq.storage.segment import DATA_SUFFIX, Segment

_SECTOR = 512
_OFFSETS_AHEAD_MAX = 1 << 40  # a batch found behind damage must plausibly belong to this log


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did."""

    clean: bool = True
    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_at: tuple[Path, int] | None = None
    kept_aside: list[Path] = field(default_factory=list)


def scan_segment(segment: Segment, start: int, note: Callable[[int, BatchHeader], None]) -> int:
    """Check every batch from `start` on, `note` the good ones, return the position where they end."""
    end = segment.file.size()
    position = start
    try:
        for at, header in segment.check(start, end):
            note(at, header)
            position = at + header.size
    except CorruptLog:
        if not _is_torn(segment, position, end):
            raise
    return position


def keep_aside(disk: Disk, segment: Segment, position: int) -> Path:
    """Save what lies behind `position` before it is cut off."""
    aside = segment.path.with_suffix(f"{DATA_SUFFIX}.cut-{position}")
    disk.remove(aside)
    copy = disk.open(aside)
    end = segment.file.size()
    for at in range(position, end, 1 << 20):
        copy.append([segment.file.pread(min(1 << 20, end - at), at)])
    copy.sync()
    return aside


def _is_torn(segment: Segment, position: int, end: int) -> bool:
    """Tell a crash from rot by what the damaged batch looks like and what lies behind it."""
    tail = segment.file.pread(end - position, position)
    return _has_lost_sector(tail, position) or not _batch_follows(tail, segment.next_offset)


def _has_lost_sector(tail: bytes, position: int) -> bool:
    """Whether a sector of the damaged batch was never written. Lost sectors are whole, aligned and zero."""
    try:
        damaged_size = min(parse_header(tail).size, len(tail))
    except InvalidBatch:
        damaged_size = min(HEADER_SIZE, len(tail))
    if not any(tail[:damaged_size]):
        return True
    zeros = bytes(_SECTOR)
    first = -position % _SECTOR
    # The sector in which the damage begins may have lost its part behind the last good batch.
    if first and not any(tail[: min(first, damaged_size)]):
        return True
    return any(
        tail[at : at + _SECTOR] == zeros[: len(tail) - at]
        for at in range(first, damaged_size, _SECTOR)
        if at < len(tail)
    )


def _batch_follows(tail: bytes, next_offset: int) -> bool:
    """Whether a whole batch with a later offset lies anywhere behind the damage."""
    view = memoryview(tail)
    at = tail.find(MAGIC, MAGIC_AT + 1)
    while at >= 0:
        start = at - MAGIC_AT
        try:
            header = parse_header(view, start)
            if 0 <= header.base_offset - next_offset < _OFFSETS_AHEAD_MAX:
                check_batch(view, start)
                return True
        except InvalidBatch:
            pass
        at = tail.find(MAGIC, at + 1)
    return False
