"""Find where a log ends after a crash.

Scanning starts at the last checkpoint, before which everything is known to be on the disk, and checks every batch.
At the first one that is not whole there are two cases, and they must not be confused:

- *corrupt*: the batch was on the disk (durable_end.py knows), or one flipped bit explains the damage, or valid batches
  follow it, or only its offset is wrong. Cutting would lose valid batches, so the log is not opened: the error names
  the file and the position, and an operator decides (`flymq repair`).
- *torn*: the crash took what was not yet on the disk. The file ends within the batch, or sectors were never written
  and read as zeros, or nothing valid follows. The log is cut there. What was cut off is kept in a file
  `<segment>.cut-<position>` and reported: it was never acknowledged as durable, but may be worth a look.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from flymq.host.disk import Disk
from flymq.model.errors import CorruptLog, InvalidBatch
from flymq.record.bit_flips import find_flipped_bit
from flymq.record.checksum import crc32c
from flymq.record.header import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    check_batch,
    parse_header,
)
from flymq.storage.segments.segment import DATA_SUFFIX, Segment, parse_name, segment_name

_CUT_INFIX = f"{DATA_SUFFIX}.cut-"
_OFFSET_BYTES = 8
_SECTOR = 512
_ZEROS_MIN = 8
_OFFSETS_AHEAD_MAX = 1 << 40  # a batch found after damage must plausibly belong to this log


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did."""

    clean: bool = True
    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_at: tuple[Path, int] | None = None
    kept_aside: list[Path] = field(default_factory=list)


def scan_segment(
    segment: Segment, start: int, note: Callable[[int, BatchHeader], None], *, durable_offset: int, is_last: bool
) -> int:
    """Check every batch from `start` on, `note` the good ones, return the position where they end.

    Everything before `durable_offset` was on the disk.
    """
    end = segment.file.size()
    position = start
    try:
        for at, header in segment.check(start, end, segment.next_offset):
            note(at, header)
            position = at + header.size
    except CorruptLog:
        if segment.next_offset < durable_offset:
            raise
        tail = segment.file.pread(end - position, position)
        if not _is_torn(tail, position, segment.next_offset, is_last=is_last):
            raise
    return position


def keep_aside(disk: Disk, segment: Segment, position: int) -> Path:
    """Save what follows `position` before it is cut off."""
    aside = cut_path(segment, position)
    disk.remove(aside)
    copy = disk.open(aside)
    end = segment.file.size()
    for at in range(position, end, 1 << 20):
        copy.append([segment.file.pread(min(1 << 20, end - at), at)])
    copy.sync()
    return aside


def cut_path(segment: Segment, position: int) -> Path:
    return segment.path.with_name(segment_name(segment.base_offset, f"{_CUT_INFIX}{position}"))


def cut_files(disk: Disk, directory: Path) -> list[tuple[Path, int, int]]:
    """Return what was kept aside, sorted: the file, the base offset of its segment, and its position in there."""
    found = []
    for name in disk.list(directory):
        digits, infix, position = name.partition(_CUT_INFIX)
        base_offset = parse_name(digits, "")
        if infix and base_offset is not None and position.isdecimal():
            found.append((directory / name, base_offset, int(position)))
    return sorted(found, key=lambda cut: cut[1:])


def cuts_before(disk: Disk, directory: Path, end_offset: int) -> list[Path]:
    """Return what was kept aside of segments that begin before `end_offset`."""
    return [path for path, base_offset, _ in cut_files(disk, directory) if base_offset < end_offset]


def _is_torn(tail: bytes, position: int, next_offset: int, *, is_last: bool) -> bool:
    """Distinguish a torn write from corruption by the damaged batch and what follows it."""
    following = _find_batch(tail, next_offset)
    if _has_flipped_bit(tail):
        return False
    if _has_lost_sector(tail, position, following) or _has_lost_beginning(tail, position, next_offset, following):
        return True
    if following is not None or _is_whole(tail):
        return False
    # A segment with others after it has lost its tail only if it is too short for its last batch.
    return is_last or _is_too_short(tail)


def _has_lost_sector(tail: bytes, position: int, following: int | None) -> bool:
    """Whether a sector of the damaged batch was never written. Lost sectors are whole, aligned and zero."""
    damaged_size = len(tail) if following is None else following
    with suppress(InvalidBatch):
        damaged_size = min(damaged_size, parse_header(tail).size)
    if not any(tail[:damaged_size]):
        return True
    zeros = bytes(_SECTOR)
    first = -position % _SECTOR
    # The sector in which the damage begins may have lost its part after the last valid batch.
    if first > MAGIC_AT and not any(tail[: min(first, damaged_size)]):
        return True
    # At the end of the file a few zeros are no sign: many a batch ends with some.
    return any(
        tail[at : at + _SECTOR] == zeros[: len(tail) - at]
        for at in range(first, damaged_size, _SECTOR)
        if at + _ZEROS_MIN <= len(tail)
    )


def _has_lost_beginning(tail: bytes, position: int, next_offset: int, following: int | None) -> bool:
    """Whether only the few bytes before the next sector were never written.

    They are too few to tell by: a batch begins with zeros. But then its offset has lost more than one bit, or else all
    that comes after them matches the checksum.
    """
    lost = -position % _SECTOR
    if not 0 < lost <= MAGIC_AT or any(tail[:lost]) or len(tail) < HEADER_SIZE:
        return False
    if lost >= _OFFSET_BYTES and next_offset.bit_count() > 1:
        return True
    return crc32c(tail[ATTRIBUTES_AT:following]) == int.from_bytes(tail[CRC_AT:ATTRIBUTES_AT])


def _has_flipped_bit(tail: bytes) -> bool:
    """Whether one flipped bit is all that is wrong with the batch. A crash does not do that."""
    with suppress(InvalidBatch):
        size = parse_header(tail).size
        return size <= len(tail) and find_flipped_bit(tail[:size]) is not None
    return False


def _is_whole(tail: bytes) -> bool:
    """Whether the batch matches its checksum: then its offset is what is wrong."""
    try:
        check_batch(tail)
    except InvalidBatch:
        return False
    return True


def _is_too_short(tail: bytes) -> bool:
    """Whether the file ends within the batch, and not its length is what is wrong."""
    if len(tail) < HEADER_SIZE:
        return True
    try:
        header = parse_header(tail)
    except InvalidBatch:
        return False
    return header.size > len(tail) and crc32c(tail[ATTRIBUTES_AT:]) != header.crc


def _find_batch(tail: bytes, next_offset: int) -> int | None:
    """Return where, after the damage, the first whole batch with a later offset begins."""
    view = memoryview(tail)
    at = tail.find(MAGIC, MAGIC_AT + 1)
    while at >= 0:
        start = at - MAGIC_AT
        try:
            header = parse_header(view, start)
            if 0 <= header.base_offset - next_offset < _OFFSETS_AHEAD_MAX:
                check_batch(view, start)
                return start
        except InvalidBatch:
            pass
        at = tail.find(MAGIC, at + 1)
    return None
