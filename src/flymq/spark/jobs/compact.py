"""The compact job: the latest value of every key of a topic, as a Parquet snapshot that is always consistent.

FOLDER/
├─ snapshots/<query>-<batch>/    the current snapshot, and the previous one for its readers
└─ current                       a symbolic link to the newest, replaced atomically

Each batch merges the last snapshot and the new records into a new snapshot. The merge is idempotent, so a batch can be
repeated after a crash.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from flymq.host.disk import SystemDisk
from flymq.spark.jobs.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flymq.spark.jobs.execution.runner import Run

EVERY_MS = 60_000
"""A shorter interval would rewrite the snapshot for few records."""

CURRENT = "current"
SNAPSHOTS = "snapshots"


class CompactJob(Job, frozen=True, kw_only=True, tag="compact", omit_defaults=True):
    """Maintain a snapshot of a topic. Records without a key are ignored; one without a value deletes its key."""

    topic: str
    to: str
    every_ms: int = EVERY_MS
    batch_records: int | None = None

    @property
    def default_name(self) -> str:
        return f"compact-{self.topic}"[:100]

    def run(self, run: Run) -> None:
        folder = Path(self.to)
        SystemDisk().make_directory(folder / SNAPSHOTS)
        records = run.read(
            subscribe=self.topic,
            startingOffsets="earliest",
            includeHeaders="true",
            maxOffsetsPerTrigger=self.batch_records,
        )

        def merge(batch: DataFrame, batch_id: int) -> None:
            name = f"{run.query_of(batch)}-{batch_id}"
            _publish(folder, name, batch)

        run.stream(records.writeStream.foreachBatch(merge))


def _publish(folder: Path, name: str, batch: DataFrame) -> None:
    """Create the snapshot with this name from the current one and a batch, unless it is the current one."""
    current = folder / CURRENT
    before = current.resolve() if current.is_symlink() else None
    target = folder / SNAPSHOTS / name
    if before is not None and before.name == name:
        return
    known = batch if before is None else batch.sparkSession.read.parquet(str(before)).unionByName(batch)
    _latest(known).write.mode("overwrite").parquet(str(target))
    _point(current, Path(SNAPSHOTS) / name)
    for old in (folder / SNAPSHOTS).iterdir():
        if old.name != name and (before is None or old.name != before.name):
            shutil.rmtree(old)


def _latest(records: DataFrame) -> DataFrame:
    """Return the last record of each key, without tombstones.

    Within a partition, the last record is the one with the highest offset. A key is in two partitions only if
    partitions were added to the topic; then the later timestamp decides.
    """
    from pyspark.sql.functions import col, max_by, struct

    columns = records.columns
    keyed = records.where(col("key").isNotNull())
    in_partition = keyed.groupBy("key", "partition").agg(max_by(struct(*columns), col("offset")).alias("last"))
    overall = in_partition.groupBy("key").agg(max_by("last", struct("last.timestamp", "last.offset")).alias("last"))
    return overall.select("last.*").where(col("value").isNotNull())


def _point(link: Path, target: Path) -> None:
    aside = link.with_name(link.name + ".tmp")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.replace(link)
    SystemDisk().sync_directory(link.parent)
