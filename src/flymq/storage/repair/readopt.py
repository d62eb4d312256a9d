"""Take back what recovery cut off as torn: the files `<segment>.cut-<position>` beside the segments.

As long as nothing was written since, the batches return to their offsets. Otherwise those offsets belong to other
records now, and the batches can only be written again at the end, as new records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct

from flymq.host.disk import ASIDE_SUFFIX, Disk
from flymq.model.topic_config import INT64_MAX, TopicConfig
from flymq.record.header import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PRODUCER_ID_AT,
    renew_checksum,
    split_batches,
)
from flymq.storage.recovery.crash_scan import cut_files
from flymq.storage.recovery.open_log import open_log
from flymq.storage.repair.examine import Whole, examine_segment
from flymq.storage.repair.salvage import rebuild, segment_bases
from flymq.storage.segments.segment import DATA_SUFFIX, segment_name

ADOPTED_SUFFIX = ".adopted"
_PRODUCER = Struct(">qhi")


@dataclass(slots=True)
class Cut:
    """A file with what was cut off, and what in it is whole."""

    path: Path
    base_offset: int
    """Of the segment."""
    position: int
    runs: list[Whole]
    records: int
    fits: bool
    """Whether its batches can return to their offsets: nothing was written there since."""


def find_cuts(disk: Disk, directory: Path) -> list[Cut]:
    """Return what was cut off in this directory, in the order of its offsets."""
    bases = segment_bases(disk, directory)
    cuts: list[Cut] = []
    fits = False
    for path, base_offset, position in cut_files(disk, directory):
        examined = examine_segment(disk, path, base_offset, None)
        runs = [part for part in examined.parts if isinstance(part, Whole)]
        raw = disk.map(path)
        records = sum(header.record_count for run in runs for _, header in split_batches(raw[run.start : run.end]))
        if base_offset in bases:
            segment = directory / segment_name(base_offset, DATA_SUFFIX)
            fits = bases[-1] == base_offset and disk.size(segment) == position
        else:  # the whole segment was set aside, because of a cut before it
            fits = fits and bases[-1] < base_offset
        cuts.append(Cut(path, base_offset, position, runs, records, fits))
    return cuts


def readopt(disk: Disk, directory: Path, cuts: list[Cut]) -> None:
    """Return the batches of these cuts to their offsets. Opening the log checks them all."""
    for cut in cuts:
        assert cut.fits, f"{cut.path} does not follow the end of the log"
        segment = directory / segment_name(cut.base_offset, DATA_SUFFIX)
        raw = disk.map(cut.path)
        new = segment.with_name(segment.name + ASIDE_SUFFIX)
        disk.remove(new)
        file = disk.open(new)
        before = [disk.map(segment)] if cut.position else []
        file.append([*before, *(raw[run.start : run.end] for run in cut.runs)])
        file.sync()
        disk.rename(new, segment)
        disk.sync_directory(directory)
        _retire(disk, cut)
    # Also the leader epochs: the one of the broker that cut it began where the batches are now.
    rebuild(disk, directory)


def append_again(disk: Disk, directory: Path, config: TopicConfig, cuts: list[Cut], *, now_ms: int) -> tuple[int, int]:
    """Write the records of these cuts at the end of the log, as new ones; return how many, and how many were left out.

    Records of transactions are left out: nobody knows whether they were committed. Their times were right when they
    were sent.
    """
    config = replace(config, timestamp_before_max_ms=INT64_MAX, timestamp_after_max_ms=INT64_MAX)
    log = open_log(disk, directory, config)
    written = skipped = 0
    for cut in cuts:
        raw = disk.map(cut.path)
        for run in cut.runs:
            for position, header in split_batches(raw[run.start : run.end]):
                if header.is_control or header.is_transactional:
                    skipped += header.record_count
                    continue
                batch = bytearray(raw[run.start + position : run.start + position + header.size])
                _PRODUCER.pack_into(batch, PRODUCER_ID_AT, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
                renew_checksum(batch, 0, len(batch))
                log.append(batch, leader_epoch=max(0, log.epochs.current), now_ms=now_ms)
                written += header.record_count
    log.close()
    for cut in cuts:
        _retire(disk, cut)
    return written, skipped


def _retire(disk: Disk, cut: Cut) -> None:
    disk.rename(cut.path, cut.path.with_name(cut.path.name + ADOPTED_SUFFIX))
    disk.sync_directory(cut.path.parent)
