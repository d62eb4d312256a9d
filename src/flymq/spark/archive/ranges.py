"""Fetch a range of a partition and write it as a piece: the work of one task, in Spark or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from flymq.spark.archive.columns import archive_columns
from flymq.spark.archive.files import write_piece
from flymq.spark.archive.manifest import Piece
from flymq.spark.broker_connection import connect
from flymq.spark.options import ReadOptions
from flymq.spark.source.corrupt_batches import parse_run
from flymq.spark.source.fetching import RangeFetch, Run
from flymq.spark.source.planning import OffsetRange

FETCH_BYTES = 8 << 20


def archive_range(root: Path, options: ReadOptions, range_: OffsetRange, attempt: str) -> Piece:
    """Write the records of a range into the archive's directory; they become part of it with a manifest."""
    piece = Piece(range_.topic, range_.partition, range_.start, range_.end)
    return write_piece(root, piece, attempt, _batches(options, range_))


def _batches(options: ReadOptions, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
    def parse(run: Run) -> pa.RecordBatch:
        return archive_columns(run.batches, run.start_offset, range_.end, run.aborted)

    fetch = RangeFetch(
        connect(options.connection(), expects_broker=True),
        isolation=options.isolation,
        fetch_bytes=options.fetch_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    for run in fetch.runs(range_):
        yield parse_run(run, range_.name, parse, fail_on_data_loss=options.fail_on_data_loss)
