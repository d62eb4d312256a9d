"""The compact job: the latest value of every key of a topic, as a snapshot in Parquet that is always whole.

FOLDER/
├─ snapshots/<query>-<batch>/    one snapshot, and the one before it for those who are still reading
└─ current                       a link to the newest, replaced in one step

Each batch makes a new snapshot from the last one and what has come since. Merging something twice changes nothing, so a
batch that is repeated after a crash does no harm.
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
"""More often would write the snapshot anew for few records."""

CURRENT = "current"
SNAPSHOTS = "snapshots"


class CompactJob(Job, frozen=True, kw_only=True, tag="compact", omit_defaults=True):
    """Keep a snapshot of a topic. Records without a key are left out; one without a value removes its key."""

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
    """Make the snapshot of this name from the current one and a batch, unless it is the current one."""
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
    """Return the last record of each key that has a value.

    Within a partition the last is the one with the highest offset. A key is in two partitions only if the topic got
    more of them meanwhile; then the later time decides.
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
