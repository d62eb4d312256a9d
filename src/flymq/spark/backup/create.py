"""Create a backup: read the state of the broker, then archive every topic up to its end."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from flymq import __version__
from flymq.host.clock import SystemClock
from flymq.model.errors import BackupExists
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.broker_state import group_offsets, topic_states
from flymq.spark.backup.contents import Backup, extents_of, write_backup
from flymq.spark.broker_connection import connect
from flymq.spark.jobs.archive import ArchiveJob
from flymq.spark.jobs.connection import Connection
from flymq.spark.jobs.execution.pipeline_state import Pipelines
from flymq.spark.jobs.execution.runner import OnProgress, run_in_session
from flymq.spark.jobs.job import Job
from flymq.spark.options import parse_write_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def create_backup(
    spark: SparkSession, root: Path, broker: Connection, on_progress: OnProgress = lambda _: None
) -> Backup:
    """Back up the whole broker into a new directory.

    Committed offsets are read first: the records before them are then in the backup, whatever is written meanwhile.
    """
    if root.exists():
        raise BackupExists(f"{root} already exists")
    created_ms = SystemClock().now_ms()
    connection = connect(parse_write_options(broker.options()).connection())
    names = [topic.name for topic in connection.run(connection.admin.list_topics())]
    topics = connection.run(topic_states(connection.admin, names))
    groups = connection.run(group_offsets(connection.admin, topics))
    archive = Archive.create(root)
    if topics:
        run_job(spark, ArchiveJob(broker=broker, topics=sorted(topics), to=str(root), once=True), on_progress)
    manifests = archive.manifests()
    backup = Backup(
        created_ms=created_ms,
        flymq_version=__version__,
        topics=topics,
        groups=groups,
        partitions=extents_of(manifests),
        size_bytes=sum(manifest.size_bytes for manifest in manifests),
    )
    write_backup(root, backup)
    return backup


def run_job(spark: SparkSession, job: Job, on_progress: OnProgress) -> str:
    """Run a job to completion, without persistent state; return its notes."""
    with tempfile.TemporaryDirectory(prefix="flymq-backup-") as state:
        folder = Pipelines(Path(state)).keep("backup", job)
        run_in_session(spark, folder, job, threading.Event(), on_progress)
        return folder.progress().note
