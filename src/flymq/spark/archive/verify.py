"""Prove that an archive is whole: every range there, no record twice, every byte as it was written."""

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
    """What was looked at, and what is wrong with it. `orphans` are files that are in no manifest: waste, not damage."""

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
    """Read the whole archive. A damaged manifest raises: without it nobody knows what else is missing."""
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
    """Yield where the ranges of a partition do not follow one another."""
    for before, piece in pairwise(pieces):
        if piece.start_offset > before.end_offset:
            yield f"{piece.name}: the offsets from {before.end_offset} to before {piece.start_offset} are missing"
        elif piece.start_offset < before.end_offset:
            yield f"{piece.name}: the offsets from {piece.start_offset} to before {before.end_offset} are there twice"


def _damage(archive: Archive, piece: Piece) -> Iterator[str]:
    """Yield what is wrong with a file."""
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
    """Yield whether a file holds other offsets than those of its range, or not in their order."""
    last = piece.start_offset - 1
    for batch in read_piece(archive.root, piece, ["offset"]):
        offsets = np.concatenate(([last], batch.column("offset").to_numpy()))
        if (np.diff(offsets) < 1).any():
            yield f"{archive.root / piece.file}: the offsets are not in their order"
            return
        last = int(offsets[-1])
    if last >= piece.end_offset:
        yield f"{archive.root / piece.file}: it holds offset {last}, beyond its range"
