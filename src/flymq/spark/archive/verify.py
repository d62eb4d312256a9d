"""Verify an archive: no missing ranges, no duplicates, every checksum correct."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from flymq.model.errors import ArchiveError
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.files import check_bytes, check_presence, read_piece
from flymq.spark.archive.manifest import Piece, by_partition


class Verification(NamedTuple):
    """What was checked, and the problems found. `orphans` are files that are in no manifest: garbage, not damage."""

    manifests: int
    files: int
    rows: int
    size_bytes: int
    problems: Sequence[str]
    orphans: int

    @property
    def is_whole(self) -> bool:
        return not self.problems


def verify(archive: Archive, on_file: Callable[[Piece], None] = lambda _: None) -> Verification:
    """Read the whole archive. A damaged manifest raises an error: without it, what is missing is unknown."""
    manifests = archive.manifests()
    problems: list[str] = []
    pieces = [piece for manifest in manifests for piece in manifest.pieces]
    for of_partition in by_partition(manifests).values():
        problems += _breaks(of_partition)
    for piece in pieces:
        problems += _damage(archive, piece)
        on_file(piece)
    return Verification(
        manifests=len(manifests),
        files=sum(1 for piece in pieces if piece.file),
        rows=sum(piece.rows for piece in pieces),
        size_bytes=sum(piece.size_bytes for piece in pieces),
        problems=problems,
        orphans=len(archive.orphans()),
    )


def _breaks(pieces: Sequence[Piece]) -> Iterator[str]:
    """Yield the gaps and overlaps between the ranges of a partition."""
    for before, piece in pairwise(pieces):
        if piece.start_offset > before.end_offset:
            yield f"{piece.name}: the offsets from {before.end_offset} to before {piece.start_offset} are missing"
        elif piece.start_offset < before.end_offset:
            yield f"{piece.name}: the offsets from {piece.start_offset} to before {before.end_offset} are duplicated"


def _damage(archive: Archive, piece: Piece) -> Iterator[str]:
    """Yield the problems of a file."""
    if not piece.file:
        if piece.rows:
            yield f"{piece.name}: {piece.rows} records from offset {piece.start_offset} have no file"
        return
    try:
        check_presence(archive.root, piece)
        check_bytes(archive.root, piece)
        yield from _wrong_offsets(archive, piece)
    except ArchiveError as error:
        yield error.message


def _wrong_offsets(archive: Archive, piece: Piece) -> Iterator[str]:
    """Yield a problem if a file has offsets outside its range, or out of order."""
    last = piece.start_offset - 1
    for batch in read_piece(archive.root, piece, ["offset"]):
        offsets = np.concatenate(([last], batch.column("offset").to_numpy()))
        if (np.diff(offsets) < 1).any():
            yield f"{archive.root / piece.file}: the offsets are out of order"
            return
        last = int(offsets[-1])
    if last >= piece.end_offset:
        yield f"{archive.root / piece.file}: it contains offset {last}, beyond its range"
