"""Open the log of a partition: trust it after an orderly end, find out where it ends after any other."""

from __future__ import annotations

from pathlib import Path

from flymq.host.disk import ASIDE_SUFFIX, Disk
from flymq.model.topic_config import TopicConfig
from flymq.storage.aborted import AbortedTransactions
from flymq.storage.checkpoint import Checkpoint, read_checkpoint, take_clean_marker, write_checkpoint
from flymq.storage.epochs import open_epochs
from flymq.storage.log import Log, LogParts
from flymq.storage.recovery import RecoveryReport, keep_aside, scan_segment
from flymq.storage.replay import replay_producers
from flymq.storage.segment import DATA_SUFFIX, Segment, segment_name
from flymq.storage.swap import SCRATCH_NAME, SWAP_SUFFIX, finish_swap


def open_log(disk: Disk, directory: Path, config: TopicConfig) -> Log:
    """Open the log in `directory`, or begin an empty one. `Log.recovery` tells what was found."""
    disk.make_directory(directory)
    _clear_leftovers(disk, directory)
    checkpoint = read_checkpoint(disk, directory)
    segments, report = _open_segments(disk, directory, config, checkpoint)
    if not report.clean:
        checkpoint = read_checkpoint(disk, directory)
    end_offset = segments[-1].next_offset
    epochs = open_epochs(disk, directory)
    epochs.cut_end(end_offset + 1)
    aborted = AbortedTransactions(disk, directory)
    start_offset = min(max(checkpoint.start_offset, segments[0].base_offset), end_offset)
    producers = replay_producers(disk, directory, segments, aborted, end_offset)
    log = Log(disk, directory, config, LogParts(segments, start_offset, producers, aborted, epochs, checkpoint, report))
    # What lies wholly before the start was on its way out when the process ended.
    log.drop_before_start()
    return log


def _clear_leftovers(disk: Disk, directory: Path) -> None:
    """Finish or undo what a crash interrupted."""
    names = disk.list(directory)
    for name in names:
        if name.endswith(ASIDE_SUFFIX):
            disk.remove(directory / name)
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        finish_swap(disk, directory)
    if SCRATCH_NAME in names:
        disk.remove_directory(directory / SCRATCH_NAME)


def _open_segments(
    disk: Disk, directory: Path, config: TopicConfig, checkpoint: Checkpoint
) -> tuple[list[Segment], RecoveryReport]:
    """Return the segments, the last one ready to grow."""
    names = [name for name in disk.list(directory) if name.endswith(DATA_SUFFIX)]
    bases = [int(name.removesuffix(DATA_SUFFIX)) for name in names]
    interval = config.index_interval_bytes
    if not bases:
        take_clean_marker(disk, directory)
        segment = Segment.create(disk, directory, checkpoint.start_offset, index_interval_bytes=interval)
        disk.sync_directory(directory)
        return [segment], RecoveryReport()
    segments = [
        Segment.open_sealed(disk, directory, base, next_offset=following, index_interval_bytes=interval)
        for base, following in zip(bases, [*bases[1:], bases[-1]], strict=True)
    ]
    active = segments[-1]
    marker = take_clean_marker(disk, directory)
    if marker is not None and marker.segment == active.base_offset and marker.size == active.size:
        active.make_writable(active.size)
        if active.next_offset == marker.end_offset:
            return segments, RecoveryReport()
    return _recover(disk, directory, segments, checkpoint)


def _recover(
    disk: Disk, directory: Path, segments: list[Segment], checkpoint: Checkpoint
) -> tuple[list[Segment], RecoveryReport]:
    """Scan from the checkpoint on and cut the log where its last whole batch ends."""
    report = RecoveryReport(clean=False)
    kept: list[Segment] = []
    for segment in segments:
        if report.cut_at is not None:
            _set_aside(disk, segment, report)
            continue
        if segment.base_offset < checkpoint.recovery_offset:
            kept.append(segment)
            continue
        if kept and kept[-1].next_offset < segment.base_offset:
            # Batches at the end of the segment before were lost whole: what follows does not follow on what is left.
            report.cut_at = (kept[-1].path, kept[-1].size)
            _set_aside(disk, segment, report)
            continue
        if kept and kept[-1].base_offset >= checkpoint.recovery_offset:
            kept[-1].seal()
        kept.append(segment)
        at_checkpoint = segment.base_offset == checkpoint.recovery_offset
        start = min(checkpoint.recovery_position, segment.size) if at_checkpoint else 0
        _scan(disk, segment, start, report)
    active = kept[-1]
    if active.base_offset < checkpoint.recovery_offset:
        active.make_writable(active.size)
    active.file.sync()
    disk.sync_directory(directory)
    write_checkpoint(disk, directory, Checkpoint(checkpoint.start_offset, active.base_offset, active.size))
    return kept, report


def _scan(disk: Disk, segment: Segment, start: int, report: RecoveryReport) -> None:
    """Check one segment and cut its torn end."""
    size = segment.file.size()
    if start == 0:
        segment.remove_indexes()
    segment.make_writable(start)
    end = scan_segment(segment, start, lambda position, header: segment.note(header, position))
    report.scanned_bytes += end - start
    if end < size:
        report.cut_at = (segment.path, end)
        report.cut_bytes += size - end
        report.kept_aside.append(keep_aside(disk, segment, end))
        segment.file.truncate(end)
    segment.mark_verified(start, end)


def _set_aside(disk: Disk, segment: Segment, report: RecoveryReport) -> None:
    """Take away a segment behind a cut: its batches do not follow on what is left."""
    if segment.size:
        aside = segment.path.with_name(segment_name(segment.base_offset, f"{DATA_SUFFIX}.cut-0"))
        disk.rename(segment.path, aside)
        report.cut_bytes += segment.size
        report.kept_aside.append(aside)
    segment.remove()
