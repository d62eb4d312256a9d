"""The archive job: topics to partitioned Parquet with manifests, continuously or once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flymq.spark.archive.archive import Archive
from flymq.spark.jobs.job import Job

if TYPE_CHECKING:
    from flymq.spark.jobs.execution.runner import Run

EVERY_MS = 60_000
"""A shorter interval would create many small files."""


class ArchiveJob(Job, frozen=True, kw_only=True, tag="archive", omit_defaults=True):
    """Archive topics to a directory. A new job continues where the archive ends."""

    topics: list[str]
    to: str
    every_ms: int = EVERY_MS
    file_records: int = 1_000_000
    """Maximum number of offsets per file."""
    batch_records: int = 10_000_000
    """Maximum number of offsets per batch; after a crash one batch is repeated."""
    allow_data_loss: bool = False
    """Whether to continue if records were deleted before they were archived."""

    @property
    def default_name(self) -> str:
        return f"archive-{'-'.join(self.topics)}"[:100]

    def run(self, run: Run) -> None:
        from flymq.spark.archive.ranges import FETCH_BYTES
        from flymq.spark.archive.stream import ArchiveStream

        archive = Archive.create(Path(self.to))
        run.spark.dataSource.register(ArchiveStream)
        options = {
            **self.broker.options(),
            "path": self.to,
            "subscribe": ",".join(self.topics),
            "startingOffsets": "earliest",
            "failOnDataLoss": str(not self.allow_data_loss).lower(),
            "maxOffsetsPerTrigger": str(self.batch_records),
            "maxRecordsPerPartition": str(self.file_records),
            "fetchBytes": str(FETCH_BYTES),
            "groupId": run.group,
        }
        with archive.lock():
            archive.sweep()
            ranges = run.spark.readStream.format(ArchiveStream.name()).options(**options).load()
            writer = ranges.writeStream.format(ArchiveStream.name()).options(**options)
            run.stream(writer, count=lambda report: archive.batch_rows(str(report.id), report.batchId))
