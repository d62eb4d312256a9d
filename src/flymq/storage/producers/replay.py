"""Rebuild the producer state and the aborted transactions of a partition from its batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flymq.host.disk import Disk
from flymq.record.control import MarkerType, parse_marker
from flymq.record.header import BatchHeader, Buffer
from flymq.storage.producers.aborted_transactions import AbortedTransaction, AbortedTransactions
from flymq.storage.producers.producer_state import Producers
from flymq.storage.producers.snapshot import load_snapshot, remove_snapshots_after
from flymq.storage.segments.segment import Segment


class Replayed(NamedTuple):
    producers: Producers
    aborted: AbortedTransactions
    snapshot_offset: int
    """The offset of the snapshot it began with; 0 without one."""


def replay(disk: Disk, directory: Path, segments: Sequence[Segment], end_offset: int, gaps_end: int) -> Replayed:
    """Return both as of `end_offset`: the newest usable snapshot, brought up to date from the batches.

    Files about anything after `end_offset` are removed, durably, when this returns.
    """
    names = disk.list(directory)
    remove_snapshots_after(disk, directory, end_offset)
    aborted = AbortedTransactions(disk, directory)
    bases = [segment.base_offset for segment in segments]
    found = load_snapshot(disk, directory, end_offset)
    if found is not None and aborted.load(bases, found[0], found[1].aborted):
        offset, producers = found[0], Producers(found[1].producers)
    else:
        aborted.clear(bases[0])
        offset, producers = 0, Producers()
    if disk.list(directory) != names:
        disk.sync_directory(directory)
    reached = offset
    for segment in segments:
        if segment.next_offset <= offset:
            continue
        if segment.base_offset > max(reached, gaps_end):
            # Batches between are missing, perhaps with the end of a transaction that would stay open forever.
            aborted.clear(bases[0])
            producers = Producers()
        reached = _replay_segment(segment, offset, producers, aborted)
    return Replayed(producers, aborted, offset)


def _replay_segment(segment: Segment, offset: int, producers: Producers, aborted: AbortedTransactions) -> int:
    """Apply the batches from `offset` on; return where they end."""
    found = segment.find(offset)
    if found is None:
        return segment.base_offset
    reached = segment.base_offset
    for position, header in segment.walk(found[0], segment.size):
        reached = header.next_offset
        if header.producer_id < 0 or header.base_offset < offset:
            continue
        if not header.is_control:
            producers.apply(header)
        elif (entry := apply_marker(header, segment.read(position, header), producers)) is not None:
            aborted.add(segment.base_offset, entry)
    return reached


def apply_marker(header: BatchHeader, batch: Buffer, producers: Producers) -> AbortedTransaction | None:
    """Apply the end of a transaction; return it if it was aborted."""
    marker = parse_marker(batch)
    if marker is None:
        return None
    committed = marker.type is MarkerType.COMMIT
    ended = producers.apply_marker(header, committed=committed, coordinator_epoch=marker.coordinator_epoch)
    if ended is None or committed:
        return None
    first_open = producers.first_open_offset
    stable_offset = header.next_offset if first_open is None else first_open
    return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable_offset)
