"""What the tests of the archive write and read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flymq.record.batch import encode_batch
from flymq.record.header import assign
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.columns import archive_columns
from flymq.spark.archive.files import write_piece
from flymq.spark.archive.manifest import Manifest, Piece, TopicState


def run_of(start_offset: int, end_offset: int, *, batch_records: int = 10, leader_epoch: int = 3) -> bytearray:
    """Return record batches with these offsets; the time of a record is its offset."""
    run = bytearray()
    for base in range(start_offset, end_offset, batch_records):
        offsets = range(base, min(base + batch_records, end_offset))
        batch = encode_batch([(b"key-%d" % n, b"value-%d" % n, [("n", b"%d" % n)], n) for n in offsets])
        assign(batch, 0, base_offset=base, leader_epoch=leader_epoch)
        run += batch
    return run


def written(root: Path, start_offset: int, end_offset: int, *, partition: int = 0, attempt: str = "a") -> Piece:
    piece = Piece("orders", partition, start_offset, end_offset)
    return write_piece(
        root, piece, attempt, [archive_columns(run_of(start_offset, end_offset), start_offset, end_offset)]
    )


def published(archive: Archive, batch: int, pieces: Iterable[Piece], *, query: str = "q") -> Manifest:
    manifest = Manifest(
        query=query,
        batch=batch,
        created_ms=1000 + batch,
        pieces=list(pieces),
        topics={"orders": TopicState("ab" * 16, 2, 1, {"retention.ms": 1000})},
        groups={"billing": {"orders": {0: 5}}},
    )
    archive.publish(manifest)
    return manifest
