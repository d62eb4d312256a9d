"""Select records of an archive by topic, time and offset; count and read exactly those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs

from flymq.spark.archive.columns import TIMESTAMP
from flymq.spark.archive.files import read_piece
from flymq.spark.archive.manifest import Piece

_WHERE = ("offset", "timestamp")


class Selection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Half-open ranges of times and offsets; None means all. Offsets are per partition."""

    since_ms: int | None = None
    until_ms: int | None = None
    start_offsets: dict[int, int] = {}
    end_offsets: dict[int, int] = {}

    def from_offset(self, partition: int) -> int:
        return self.start_offsets.get(partition, 0)

    def to_offset(self, partition: int) -> int:
        return self.end_offsets.get(partition, (1 << 63) - 1)

    def beginning_at(self, partition: int, offset: int) -> Selection:
        """Return the same without the records of a partition before an offset."""
        start = max(offset, self.from_offset(partition))
        return structs.replace(self, start_offsets={**self.start_offsets, partition: start})

    def up_to(self, partition: int, offset: int) -> Selection:
        """Return the same without the records of a partition from an offset on."""
        end = min(offset, self.to_offset(partition))
        return structs.replace(self, end_offsets={**self.end_offsets, partition: end})

    def takes_all(self, piece: Piece) -> bool:
        """Whether every record of a piece is selected, according to its manifest."""
        return (
            self.from_offset(piece.partition) <= piece.start_offset
            and piece.end_offset <= self.to_offset(piece.partition)
            and (self.since_ms is None or self.since_ms <= piece.min_timestamp_ms)
            and (self.until_ms is None or piece.max_timestamp_ms < self.until_ms)
        )

    def takes_none(self, piece: Piece) -> bool:
        """Whether no record of a piece is selected, according to its manifest."""
        return (
            not piece.rows
            or piece.end_offset <= self.from_offset(piece.partition)
            or self.to_offset(piece.partition) <= piece.start_offset
            or (self.since_ms is not None and piece.max_timestamp_ms < self.since_ms)
            or (self.until_ms is not None and self.until_ms <= piece.min_timestamp_ms)
        )


def selected(
    root: Path, pieces: Sequence[Piece], selection: Selection, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of one partition in order. A range that is in two pieces is read once."""
    next_offset = 0
    for piece in pieces:
        if piece.end_offset <= next_offset or selection.takes_none(piece):
            continue
        for batch in read_piece(root, piece, columns):
            start = max(next_offset, selection.from_offset(piece.partition))
            kept = _within(batch, start, selection.to_offset(piece.partition))
            kept = kept if selection.takes_all(piece) else _of_time(kept, selection)
            if len(kept):
                yield kept
        next_offset = piece.end_offset


def count_selected(root: Path, pieces: Sequence[Piece], selection: Selection) -> int:
    """Return the number of selected records. Opens only files that are partly selected."""
    count = next_offset = 0
    for piece in pieces:
        if piece.start_offset >= next_offset and selection.takes_all(piece):
            count += piece.rows
        else:
            rest = selection.beginning_at(piece.partition, next_offset)
            count += sum(len(batch) for batch in selected(root, [piece], rest, _WHERE))
        next_offset = max(next_offset, piece.end_offset)
    return count


def _within(batch: pa.RecordBatch, start_offset: int, end_offset: int) -> pa.RecordBatch:
    offsets = batch.column("offset").to_numpy()
    first, last = offsets.searchsorted([start_offset, end_offset])
    return batch.slice(int(first), int(last - first))


def _of_time(batch: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    times = batch.column("timestamp")
    if selection.since_ms is not None:
        batch = batch.filter(pc.greater_equal(times, pa.scalar(selection.since_ms, TIMESTAMP)))
        times = batch.column("timestamp")
    if selection.until_ms is not None:
        batch = batch.filter(pc.less(times, pa.scalar(selection.until_ms, TIMESTAMP)))
    return batch
