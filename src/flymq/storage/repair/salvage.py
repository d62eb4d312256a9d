"""Bring a log with damaged batches, missing segments or lost notes back into a state that can be opened.

What is whole stays, at its offset. What one flipped bit has damaged is mended. All other damaged bytes are taken out
and kept beside the segment, in `<segment>.bad-<position>`. No offset is given out a second time: where the end of the
log is lost, it continues after the last offset that is known to have been on the disk.

Every step can be interrupted and done again: a segment is replaced by rename, after what is taken out of it is saved.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path

from flymq.host.disk import ASIDE_SUFFIX, Disk, rename_synced
from flymq.storage.compaction.segment_swap import finish_swaps
from flymq.storage.leader_epochs import FILE_NAME as EPOCHS_NAME
from flymq.storage.producers.aborted_transactions import SUFFIX as ABORTED_SUFFIX
from flymq.storage.producers.snapshot import SUFFIX as PRODUCERS_SUFFIX
from flymq.storage.recovery.checkpoint import (
    CHECKPOINT_NAME,
    CLEAN_NAME,
    Checkpoint,
    Compacted,
    read_checkpoint,
    read_compacted,
    write_checkpoint,
    write_compacted,
)
from flymq.storage.recovery.checksummed_note import read_note
from flymq.storage.recovery.durable_end import read_durable_end
from flymq.storage.repair.examine import Damaged, Examined, Whole, examine_segment
from flymq.storage.segments.segment import DATA_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, parse_name, segment_name

BAD_INFIX = f"{DATA_SUFFIX}.bad-"


@dataclass(slots=True)
class LogExamined:
    """What the files of a partition hold."""

    directory: Path
    segments: list[Examined]
    durable_offset: int
    """Up to where the log was on the disk, as far as is known."""
    missing: list[tuple[int, int]] = field(default_factory=list)
    """Offsets between segments, or after the last one, of which nothing is left."""

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else 0

    @property
    def damaged(self) -> list[tuple[Path, Damaged]]:
        """The damage, without a torn end: what a crash has left after the durable end is cut when the log is opened."""
        found = [(segment.path, part) for segment in self.segments for part in segment.damaged]
        if found and self.segments[-1].damaged and found[-1][1] is self.segments[-1].parts[-1]:
            _, last = found[-1]
            if last.mended is None and last.offsets[0] >= self.durable_offset:
                found.pop()
        return found

    @property
    def is_whole(self) -> bool:
        return not self.missing and not self.damaged


def examine_log(disk: Disk, directory: Path) -> LogExamined:
    """Read every segment of a partition. Changes nothing."""
    checkpoint = read_note(disk, directory / CHECKPOINT_NAME, Checkpoint)
    start_offset = 0 if checkpoint is None else checkpoint.start_offset
    bases = segment_bases(disk, directory)
    bases = bases[max(0, bisect_right(bases, start_offset) - 1) :]  # others were being removed
    segments = [
        examine_segment(disk, directory / segment_name(base, DATA_SUFFIX), base, following)
        for base, following in zip_longest(bases, bases[1:])
    ]
    found = LogExamined(directory, segments, read_durable_end(disk, directory))
    compacted = read_compacted(disk, directory)
    gaps_end = compacted.gaps_end if compacted is not None else 0
    for before, after in pairwise(segments):
        # The end of a segment that is damaged is reported as such.
        if before.next_offset < after.base_offset > gaps_end and not _ends_damaged(before):
            found.missing.append((before.next_offset, after.base_offset))
    if checkpoint is not None and segments and start_offset < segments[0].base_offset:
        found.missing.append((start_offset, segments[0].base_offset))
    if found.end_offset < found.durable_offset and not (segments and _ends_damaged(segments[-1])):
        found.missing.append((max(found.end_offset, start_offset), found.durable_offset))
    return found


def salvage(disk: Disk, found: LogExamined) -> list[Path]:
    """Repair the log; return the files that hold what was taken out."""
    directory = found.directory
    finish_swaps(disk, directory)
    kept_aside: list[Path] = []
    for segment in found.segments:
        if segment.damaged:
            kept_aside += _replace(disk, segment)
    if not found.segments or found.end_offset < found.durable_offset:  # the next offset is one that nobody has seen
        disk.open(directory / segment_name(found.durable_offset, DATA_SUFFIX)).sync()
    compacted = read_compacted(disk, directory) or Compacted()
    bases = segment_bases(disk, directory)
    write_compacted(disk, directory, Compacted(compacted.end_offset, gaps_end=max(compacted.gaps_end, bases[-1])))
    _scan_again(disk, directory, bases)
    return kept_aside


def rebuild(disk: Disk, directory: Path) -> None:
    """Remove everything that can be derived from the segments. Opening the log builds it again."""
    for name in disk.list(directory):
        if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, PRODUCERS_SUFFIX, ABORTED_SUFFIX)) or name == EPOCHS_NAME:
            disk.remove(directory / name)
    _scan_again(disk, directory, segment_bases(disk, directory))


def _scan_again(disk: Disk, directory: Path, bases: list[int]) -> None:
    """Let the next opening check every batch."""
    disk.remove(directory / CLEAN_NAME)
    start_offset = read_checkpoint(disk, directory).start_offset
    disk.remove(directory / CHECKPOINT_NAME)
    first = bases[0] if bases else 0
    write_checkpoint(disk, directory, Checkpoint(max(start_offset, first), first, 0))


def _replace(disk: Disk, segment: Examined) -> list[Path]:
    """Write the segment without its damage; return where that is kept."""
    raw = disk.map(segment.path)
    pieces: list[bytes | memoryview] = []
    aside: list[Path] = []
    for part in segment.parts:
        if isinstance(part, Whole):
            pieces.append(raw[part.start : part.end])
        elif part.mended is not None:
            pieces.append(part.mended)
        else:
            path = segment.path.with_name(segment_name(segment.base_offset, f"{BAD_INFIX}{part.start}"))
            rename_synced(disk, path, bytes(raw[part.start : part.end]))
            aside.append(path)
    disk.sync_directory(segment.path.parent)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        disk.remove(segment.path.with_suffix(suffix))
    disk.sync_directory(segment.path.parent)
    new = segment.path.with_name(segment.path.name + ASIDE_SUFFIX)
    disk.remove(new)
    file = disk.open(new)
    file.append(pieces)
    file.sync()
    disk.rename(new, segment.path)
    disk.sync_directory(segment.path.parent)
    return aside


def _ends_damaged(segment: Examined) -> bool:
    return bool(segment.parts) and isinstance(segment.parts[-1], Damaged) and segment.parts[-1].mended is None


def segment_bases(disk: Disk, directory: Path) -> list[int]:
    return [base for name in disk.list(directory) if (base := parse_name(name, DATA_SUFFIX)) is not None]
