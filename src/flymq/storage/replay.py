"""Build again, from the batches, what a partition remembers of its producers and aborted transactions."""

from __future__ import annotations

from pathlib import Path

from flymq.host.disk import Disk, File
from flymq.record.control import MarkerType, parse_marker
from flymq.record.header import BatchHeader, Buffer
from flymq.storage.aborted import AbortedTransaction, AbortedTransactions
from flymq.storage.producers import SNAPSHOT_SUFFIX, Producers
from flymq.storage.segment import Segment


def replay_producers(
    disk: Disk, directory: Path, segments: list[Segment], aborted: AbortedTransactions, end_offset: int
) -> Producers:
    """Return the producers as of `end_offset`: the newest usable snapshot, brought up to date from the batches."""
    producers, offset = _load_snapshot(disk, directory, end_offset)
    for segment in segments:
        aborted.load(segment.base_offset, offset)
    for segment in segments:
        if segment.next_offset <= offset or not segment.size:
            continue
        start = segment.find(offset)
        if start is None:
            continue
        for position, header in segment.walk(start[0], segment.size):
            if header.producer_id < 0 or header.base_offset < offset:
                continue
            if header.is_control:
                batch = segment.file.pread(header.size, position)
                remember_marker(header, batch, producers, aborted, segment.base_offset)
            else:
                producers.apply(header)
    return producers


def remember_marker(
    header: BatchHeader, batch: Buffer, producers: Producers, aborted: AbortedTransactions, base_offset: int
) -> File | None:
    """Take in the end of a transaction; return the file that grew if it was aborted."""
    marker = parse_marker(batch)
    if marker is None:
        return None
    ended = producers.apply_marker(
        header, committed=marker.type is MarkerType.COMMIT, coordinator_epoch=marker.coordinator_epoch
    )
    if ended is None or ended.committed:
        return None
    first_open = producers.first_open_offset
    stable_offset = header.next_offset if first_open is None else first_open
    return aborted.add(
        base_offset, AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable_offset)
    )


def snapshot_names(disk: Disk, directory: Path) -> list[str]:
    """Names of the snapshots, oldest first."""
    return [name for name in disk.list(directory) if name.endswith(SNAPSHOT_SUFFIX)]


def _load_snapshot(disk: Disk, directory: Path, end_offset: int) -> tuple[Producers, int]:
    """Return the newest readable snapshot at or before `end_offset`, with its offset; later ones are removed."""
    for name in reversed(snapshot_names(disk, directory)):
        offset = int(name.removesuffix(SNAPSHOT_SUFFIX))
        producers = Producers.from_bytes(disk.read(directory / name)) if offset <= end_offset else None
        if producers is not None:
            return producers, offset
        disk.remove(directory / name)
    return Producers(), 0
