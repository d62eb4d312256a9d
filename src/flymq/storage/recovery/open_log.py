"""Open the log of a partition: trust it after a clean shutdown, scan for its end after a crash."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from pathlib import Path

from flymq.host.disk import ASIDE_SUFFIX, Disk, replace_file
from flymq.model.errors import CorruptLog, FileVanished, ResourcesExhausted
from flymq.model.topic_config import TopicConfig
from flymq.record.header import BatchHeader
from flymq.storage.compaction.segment_swap import SCRATCH_NAME, finish_swaps
from flymq.storage.leader_epochs import FILE_NAME as EPOCHS_NAME
from flymq.storage.leader_epochs import EpochRun, EpochRuns, LeaderEpochs, read_epochs, walk_epochs
from flymq.storage.log import Log, LogParts
from flymq.storage.producers.replay import replay
from flymq.storage.recovery.checkpoint import (
    COMPACTED_NAME,
    Checkpoint,
    CleanMarker,
    Compacted,
    read_checkpoint,
    read_compacted,
    take_clean_marker,
    write_checkpoint,
)
from flymq.storage.recovery.checksummed_note import encode_note
from flymq.storage.recovery.crash_scan import RecoveryReport, cut_path, keep_aside, scan_segment
from flymq.storage.recovery.durable_end import read_durable_end
from flymq.storage.segments.segment import DATA_SUFFIX, Segment, parse_name


def open_log(disk: Disk, directory: Path, config: TopicConfig) -> Log:
    """Open the log in `directory`, or create an empty one. `Log.recovery` says what was found."""
    disk.make_directory(directory)
    _clear_leftovers(disk, directory)
    checkpoint, durable_offset = read_checkpoint(disk, directory), read_durable_end(disk, directory)
    segments = _list_segments(disk, directory, config, checkpoint)
    compacted = read_compacted(disk, directory) or _assume_compacted(disk, directory, config, segments)
    report = RecoveryReport()
    runs = EpochRuns()
    report.clean = _was_closed_cleanly(disk, directory, segments[-1], durable_offset)
    if not report.clean:
        segments = _recover(disk, directory, segments, checkpoint, compacted, durable_offset, report, runs)
    epochs, epochs_saved = _restore_epochs(disk, directory, segments, runs.runs)
    if not report.clean:
        recovered = Checkpoint(checkpoint.start_offset, segments[-1].base_offset, segments[-1].size)
        with suppress(ResourcesExhausted):  # it must open for retention to make room; then the next scan is as long
            if not epochs_saved:  # before the checkpoint: the next scan will not see these headers again
                replace_file(disk, directory / EPOCHS_NAME, encode_note(epochs.starts))
                epochs_saved = True
            write_checkpoint(disk, directory, recovered)
            checkpoint = recovered
    end_offset = segments[-1].next_offset
    start_offset = max(checkpoint.start_offset, segments[0].base_offset)
    producers, aborted, snapshot_offset = replay(disk, directory, segments, end_offset, compacted.gaps_end)
    aborted.remove_before(segments[0].base_offset)
    parts = LogParts(
        segments=segments,
        start_offset=start_offset,
        producers=producers,
        aborted=aborted,
        epochs=epochs,
        epochs_saved=epochs_saved,
        checkpoint=checkpoint,
        compacted=compacted,
        durable_offset=durable_offset,
        snapshot_offset=snapshot_offset,
        report=report,
    )
    log = Log(disk, directory, config, parts)
    log.restart_if_empty()
    return log


def _clear_leftovers(disk: Disk, directory: Path) -> None:
    """Finish or undo what a crash interrupted."""
    names = disk.list(directory)
    for name in names:
        if name.endswith(ASIDE_SUFFIX):
            disk.remove(directory / name)
    finish_swaps(disk, directory)
    if SCRATCH_NAME in names:
        disk.remove_directory(directory / SCRATCH_NAME)


def _list_segments(disk: Disk, directory: Path, config: TopicConfig, checkpoint: Checkpoint) -> list[Segment]:
    """Return the segments that are there, a new one in an empty directory."""
    interval = config.index_interval_bytes
    bases = [base for name in disk.list(directory) if (base := parse_name(name, DATA_SUFFIX)) is not None]
    # Segments wholly before the start were being removed when the process ended; there may be gaps between them.
    first = max(0, bisect_right(bases, checkpoint.start_offset) - 1)
    for base in bases[:first]:
        Segment(disk, directory, base, index_interval_bytes=interval).remove()
    bases = bases[first:]
    scanned_from = checkpoint.recovery_offset
    if scanned_from not in bases and (bases[0] < scanned_from if bases else checkpoint != Checkpoint()):
        raise FileVanished(f"{directory}: the segment that begins at offset {scanned_from} is missing")
    if bases and checkpoint.start_offset < bases[0] and checkpoint != Checkpoint():  # else the note is lost
        raise FileVanished(f"{directory}: the records before offset {bases[0]} are missing")
    if not bases:
        segment = Segment.create(disk, directory, 0, index_interval_bytes=interval)
        disk.sync_directory(directory)
        return [segment]
    return [
        Segment.open_sealed(disk, directory, base, next_offset=following, index_interval_bytes=interval)
        for base, following in zip(bases, [*bases[1:], bases[-1]], strict=True)
    ]


def _assume_compacted(disk: Disk, directory: Path, config: TopicConfig, segments: list[Segment]) -> Compacted:
    """Return what to believe without a readable note: if the log may have been compacted, gaps are no loss."""
    if config.cleanup_policy.compacts or disk.exists(directory / COMPACTED_NAME):
        return Compacted(0, gaps_end=segments[-1].base_offset)
    return Compacted()


def _was_closed_cleanly(disk: Disk, directory: Path, active: Segment, durable_offset: int) -> bool:
    """Return whether the log was closed and not written since; if so, make the active segment writable."""
    marker = take_clean_marker(disk, directory)
    if marker is None and active.base_offset == active.size == durable_offset == 0:
        marker = CleanMarker(0, 0, 0)  # nothing was ever in it
    if marker is None or (marker.segment, marker.size) != (active.base_offset, active.size):
        return False
    active.make_writable(active.size)
    if active.next_offset != marker.end_offset:
        raise CorruptLog(
            f"{active.path} at byte {active.size}: the batches end at offset {active.next_offset}, "
            f"when the log was closed they ended at {marker.end_offset}"
        )
    return True


def _recover(
    disk: Disk,
    directory: Path,
    segments: list[Segment],
    checkpoint: Checkpoint,
    compacted: Compacted,
    durable_offset: int,
    report: RecoveryReport,
    runs: EpochRuns,
) -> list[Segment]:
    """Scan from the checkpoint on and return the segments up to where the last whole batch ends.

    Nothing is changed where records before `durable_offset` are missing: that is no crash.
    """
    kept = [segment for segment in segments if segment.base_offset < checkpoint.recovery_offset]
    rest = segments[len(kept) :]
    for segment in rest:
        if report.cut_at is None and kept:
            _check_follows(kept[-1], segment, compacted, durable_offset, report)
        if report.cut_at is not None:
            _set_aside(disk, segment, report)
            continue
        if kept and kept[-1] in rest:
            with suppress(ResourcesExhausted):  # then its indexes stay in memory
                kept[-1].seal()
        kept.append(segment)
        start = checkpoint.recovery_position if segment.base_offset == checkpoint.recovery_offset else 0
        _scan(disk, segment, start, durable_offset, report, runs, is_last=segment is segments[-1])
    disk.sync_directory(directory)
    return kept


def _restore_epochs(
    disk: Disk, directory: Path, segments: list[Segment], scanned: list[EpochRun]
) -> tuple[LeaderEpochs, bool]:
    """Return the history of leaders, and whether its file says the same. `scanned` is what the scan has seen.

    A missing or damaged file is rebuilt from all headers; only epochs that wrote nothing are lost with it.
    """
    saved = read_epochs(disk, directory)
    epochs = LeaderEpochs(saved or ())
    for run in walk_epochs(segments) if saved is None else scanned:
        epochs.observe(run)
    epochs.cut_end(segments[-1].next_offset + 1)
    epochs.cut_start(segments[0].base_offset)
    return epochs, epochs.starts == (saved or [])


def _check_follows(
    before: Segment, segment: Segment, compacted: Compacted, durable_offset: int, report: RecoveryReport
) -> None:
    """Check that a segment begins where the scan found the end of the one before."""
    if before.next_offset > segment.base_offset:
        raise CorruptLog(
            f"{before.path} at byte {before.size}: its offsets reach to {before.next_offset}, "
            f"the next segment begins at {segment.base_offset}"
        )
    if before.next_offset < segment.base_offset and segment.base_offset > compacted.gaps_end:
        # Whole batches at the end of the segment before were lost: what follows does not follow what is left.
        if before.next_offset < durable_offset:
            raise _lost(before, durable_offset)
        report.cut_at = (before.path, before.size)


def _lost(segment: Segment, durable_offset: int) -> CorruptLog:
    return CorruptLog(
        f"{segment.path} at byte {segment.size}: the batches end at offset {segment.next_offset}, "
        f"but records up to {durable_offset} were on the disk"
    )


def _scan(
    disk: Disk,
    segment: Segment,
    start: int,
    durable_offset: int,
    report: RecoveryReport,
    runs: EpochRuns,
    *,
    is_last: bool,
) -> None:
    """Check one segment, cut its torn end and bring it to the disk: a killed process may have left it in the cache."""
    size = segment.file.size()
    if size < start:
        raise CorruptLog(f"{segment.path} ends at byte {size}; up to {start} it was known to be on the disk")
    segment.make_writable(start)

    def note(position: int, header: BatchHeader) -> None:
        runs.add(header, segment.next_offset)
        segment.note(header, position)

    end = scan_segment(segment, start, note, durable_offset=durable_offset, is_last=is_last)
    if is_last and segment.next_offset < durable_offset:
        raise _lost(segment, durable_offset)
    report.scanned_bytes += end - start
    if end < size:
        report.cut_at = (segment.path, end)
        report.cut_bytes += size - end
        report.kept_aside.append(keep_aside(disk, segment, end))
        segment.file.truncate(end)
    if end > start:
        segment.mark_checked(start, end)
    segment.file.sync()


def _set_aside(disk: Disk, segment: Segment, report: RecoveryReport) -> None:
    """Move a segment after a cut away: its batches do not follow what is left."""
    if segment.size:
        aside = cut_path(segment, 0)
        disk.rename(segment.path, aside)
        report.cut_bytes += segment.size
        report.kept_aside.append(aside)
    segment.remove()
