"""Pipelines on local[2]: archive and restore a topic with values of 100 B.

A job takes seconds to start, whatever it does; an archive then goes on batch by batch, so one batch has its own row.
The broker runs beside Spark on the same two cores. CPU time is that of Spark: its Java process and its Python workers.
A streaming query takes the time of its source's process with it when it ends, so the archive has none.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.processes import broker
from benchmarks.row import Row, row, show
from benchmarks.spark import PARTITIONS, VALUE, java_of, measured_rate
from flymq import FlyMQClient
from flymq.spark.jobs.archive import ArchiveJob
from flymq.spark.jobs.connection import Connection
from flymq.spark.jobs.execution.pipeline_state import Pipelines, Progress
from flymq.spark.jobs.execution.runner import run_in_session
from flymq.spark.jobs.job import Job
from flymq.spark.jobs.restore import RestoreJob
from flymq.spark.session import open_session

_SETTINGS = {"retention.bytes": -1, "retention.ms": -1}
_FILE_RECORDS = 500_000
_WARM_UP_ROWS = 200_000


def run(quick: bool = False) -> list[Row]:
    rows = 1_000_000 if quick else 6_000_000
    with (
        tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch,
        broker() as measured,
        open_session("bench", master="local[2]") as spark,
    ):
        address = f"127.0.0.1:{measured.port}"
        with FlyMQClient(address) as client:
            for topic, count in (("warm-up", _WARM_UP_ROWS), ("bench", rows)):
                client.create_topic(topic, PARTITIONS, settings=_SETTINGS)
                for number in range(count // 10_000):
                    client.produce_batch(topic, [VALUE] * 10_000, partition=number % PARTITIONS)
        return _archive_and_restore(spark, Connection(server=address), Path(scratch), rows)


def _archive_and_restore(spark: SparkSession, connection: Connection, scratch: Path, rows: int) -> list[Row]:
    java = java_of(spark)
    pipelines = Pipelines(scratch / "pipelines")

    def done(job: Job) -> Progress:
        folder = pipelines.keep(job.default_name, job)
        run_in_session(spark, folder, job, threading.Event())
        return folder.progress()

    def archive(topic: str) -> Progress:
        to = str(scratch / topic)
        return done(ArchiveJob(broker=connection, topics=[topic], to=to, once=True, file_records=_FILE_RECORDS))

    def restore(topic: str) -> None:
        done(RestoreJob(broker=connection, archive=str(scratch / topic), to=f"{topic}-restored"))

    archive("warm-up")
    batches: list[float] = []
    archived = measured_rate(java, rows, lambda: batches.append(archive("bench").records_per_s))
    restore("warm-up")
    restored = measured_rate(java, rows, lambda: restore("bench"))
    return [
        row("archive a topic, one batch of it", batches[0], "rows/s", target=">= 0.7 M"),
        row("archive a topic, from the start of the job to its end", archived.per_s, "rows/s"),
        row("restore a topic, from the start of the job to its end", restored.per_s, "rows/s"),
        row("restore a topic, a second of Spark's processor time", restored.per_cpu_s, "rows/CPU s"),
    ]


if __name__ == "__main__":
    print(show(run("--quick" in sys.argv)))
