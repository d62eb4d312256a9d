"""The archive job as a Spark stream: the source yields offset ranges, the sink writes files.

    latestOffset ──▶ one row per range ──▶ write: fetch it, write a Parquet file ──▶ commit: publish the manifest

Records never pass through the JVM. A task that is retried writes another file; the manifest lists the file of the
attempt that Spark accepted, and orphaned files are removed when the next job starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import IntegerType, LongType, Row, StringType, StructField, StructType

from flymq.host.clock import SystemClock
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.broker_state import group_offsets, topic_states
from flymq.spark.archive.manifest import Manifest, Piece, end_offsets
from flymq.spark.archive.ranges import archive_range
from flymq.spark.broker_connection import connect
from flymq.spark.error_messages import hints_in_errors
from flymq.spark.options import ReadOptions, parse_read_options
from flymq.spark.source.offsets import from_spark, to_spark
from flymq.spark.source.planning import OffsetRange
from flymq.spark.source.stream_reader import StreamReader

RANGE = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
    ]
)


class ArchiveStream(DataSource):
    """Source and sink of the archive job. `path` is the archive, the other options are those of the format "flymq"."""

    @classmethod
    def name(cls) -> str:
        return "flymq-archive"

    def schema(self) -> StructType:
        return RANGE

    def streamReader(self, schema: StructType) -> RangeReader:  # noqa: N802
        return RangeReader(*self._parsed(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PieceWriter:  # noqa: N802
        return PieceWriter(*self._parsed())

    def _parsed(self) -> tuple[Path, ReadOptions]:
        options = dict(self.options)
        root = Path(options.pop("path"))
        with hints_in_errors():
            return root, parse_read_options(options)


class RangeReader(StreamReader):
    """Plans like the topic source, starts where the archive ends, and yields the ranges themselves."""

    def __init__(self, root: Path, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._root = root

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        starts = from_spark(super().initialOffset())
        with hints_in_errors():
            ends = end_offsets(Archive.open(self._root).manifests())
        return to_spark({name: ends.get(name, offset) for name, offset in starts.items()})

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is not None:
            yield tuple(partition.value)


@dataclass
class Written(WriterCommitMessage):
    """The files that one task has written."""

    query: str
    pieces: list[Piece]


class PieceWriter(DataSourceStreamWriter):
    """Writes the files of a batch in its tasks, and publishes them atomically at its end."""

    def __init__(self, root: Path, options: ReadOptions) -> None:
        self._root = root
        self._options = options

    def write(self, iterator: Iterator[Row]) -> Written:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        if Archive(self._root).has_batch(query, batch):  # rerun after a crash: it was already published
            return Written(query, [])
        attempt = f"{query[:8]}-{batch}-{context.taskAttemptId()}"
        with hints_in_errors():
            pieces = [archive_range(self._root, self._options, OffsetRange(*row), attempt) for row in iterator]
        return Written(query, pieces)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        written = [message for message in messages if isinstance(message, Written)]
        pieces = [piece for message in written for piece in message.pieces]
        if not pieces:
            return
        topics = {piece.topic for piece in pieces}
        with hints_in_errors():
            connection = connect(self._options.connection(), expects_broker=True)
            manifest = Manifest(
                query=written[0].query,
                batch=batchId,
                created_ms=SystemClock().now_ms(),
                pieces=pieces,
                topics=connection.run(topic_states(connection.admin, topics)),
                groups=connection.run(group_offsets(connection.admin, topics)),
            )
            Archive(self._root).publish(manifest)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the files, unless the batch was published before the failure."""
        for message in messages:
            if isinstance(message, Written) and not Archive(self._root).has_batch(message.query, batchId):
                for piece in message.pieces:
                    with suppress(OSError):
                        (self._root / piece.file).unlink()
