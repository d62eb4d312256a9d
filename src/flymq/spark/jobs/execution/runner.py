"""Run a job: start a Spark session, watch the query, report progress, and shut down cleanly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from flymq.host.clock import SystemClock
from flymq.spark.archive.broker_state import OWN_GROUPS
from flymq.spark.error_messages import failure_of
from flymq.spark.jobs.connection import Connection
from flymq.spark.jobs.execution.batch_progress import CountRecords, Measure, records_read
from flymq.spark.jobs.execution.pipeline_state import PipelineFolder, Progress, State
from flymq.spark.session import LOCAL_MASTER, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from flymq.spark.jobs.job import Job

RETRY_S = 10.0
_LOOK_EVERY_S = 1

OnProgress = Callable[[Progress], None]


class Run:
    """One run of a pipeline: the interface of a job to its environment."""

    def __init__(
        self, spark: SparkSession, folder: PipelineFolder, job: Job, stopping: threading.Event, on_progress: OnProgress
    ) -> None:
        self.spark = spark
        self.folder = folder
        self._job = job
        self._stopping = stopping
        self._on_progress = on_progress
        self._progress = folder.progress()

    @property
    def group(self) -> str:
        """The consumer group that shows the pipeline's lag."""
        return OWN_GROUPS + self.folder.name

    @property
    def is_stopping(self) -> bool:
        """Whether the job should stop."""
        return self._stopping.is_set()

    def report(self, **changes: Any) -> None:
        """Report progress: fields of `Progress`."""
        now_ms = SystemClock().now_ms()
        self._progress = msgspec.structs.replace(self._progress, **changes, updated_ms=now_ms)
        self.folder.report(self._progress)
        self._on_progress(self._progress)

    def stream(self, writer: DataStreamWriter, count: CountRecords = records_read) -> None:
        """Run a streaming query with the pipeline's checkpoint, until it ends or the job should stop."""
        writer = writer.option("checkpointLocation", str(self.folder.checkpoint.absolute())).queryName(self.folder.name)
        if self._job.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._job.every_ms} milliseconds")
        self._watch(writer.start(), Measure(self._progress, count))

    def _watch(self, query: StreamingQuery, measure: Measure) -> None:
        batches_then: int | None = None
        try:
            while not query.awaitTermination(_LOOK_EVERY_S):
                if measure.add(query.recentProgress):
                    self.report(**measure.changes())
                if self.is_stopping:
                    batches_then = measure.batches if batches_then is None else batches_then
                    if measure.batches > batches_then or not query.status["isTriggerActive"]:
                        break
        finally:
            query.stop()  # the output of an unfinished batch is not visible, or is rewritten identically
        if measure.add(query.recentProgress):
            self.report(**measure.changes())

    # --- sources and sinks of jobs

    def read(self, **options: Any) -> DataFrame:
        """Return a stream of topics, with options of the format "flymq"; None means not set."""
        return self.read_from(self._job.broker, groupId=self.group, **options)

    def read_from(self, source: Connection, **options: Any) -> DataFrame:
        """Return a stream of topics of another cluster."""
        return self.spark.readStream.format("flymq").options(**source.options(), **_given(options)).load()

    def write(self, records: DataFrame, *, mode: str = "append", **options: Any) -> None:
        """Write a stream to topics, exactly once.

        Python sinks support the append mode only. Updates are written with foreachBatch instead, each batch with the
        query id as txnAppId and the batch id as txnVersion, so that a repeated one is skipped.
        """
        sink = {**self._job.broker.options(), **_given(options)}
        writer = records.writeStream.outputMode(mode)
        if mode == "append":
            self.stream(writer.format("flymq").options(**sink))
            return

        def add(batch: DataFrame, batch_id: int) -> None:
            named = {"txnAppId": self.query_of(batch), "txnVersion": str(batch_id)}
            batch.write.format("flymq").mode("append").options(**sink, **named).save()

        self.stream(writer.foreachBatch(add))

    def write_parquet(self, rows: DataFrame, folder: str) -> None:
        """Write a stream to a directory, exactly once: a repeated batch replaces its own files."""

        def replace(batch: DataFrame, batch_id: int) -> None:
            batch = batch.persist()
            if not batch.isEmpty():
                target = f"{folder}/query={self.query_of(batch)}/batch={batch_id}"
                batch.coalesce(1).write.mode("overwrite").parquet(target)
            batch.unpersist()

        self.stream(rows.writeStream.foreachBatch(replace))

    def query_of(self, batch: DataFrame) -> str:
        """Return the id of the query of a batch: it is stable with the checkpoint."""
        return str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def _given(options: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if value is not None}


def run_pipeline(folder: PipelineFolder, on_progress: OnProgress = lambda _: None) -> Progress:
    """Run a pipeline in this process until it is done, is stopped by SIGTERM or Ctrl-C, or fails."""
    with folder.running(), _told_to_stop() as stopping:
        job = folder.job()
        before = folder.progress()
        folder.report(msgspec.structs.replace(before, state=State.STARTING, error="", hint=""))
        try:
            master = job.master or LOCAL_MASTER
            with open_session(f"flymq {folder.name}", master=master, java_log=folder.log) as spark:
                _hush_spark()
                keep_running(spark, folder, job, stopping, on_progress)
        except Exception as error:
            failure = failure_of(error)
            said = {"error": failure.message, "hint": failure.hint}
            folder.report(msgspec.structs.replace(folder.progress(), state=State.FAILED, **said))
            if failure is error:
                raise
            raise failure from error
        return folder.progress()


def keep_running(
    spark: SparkSession,
    folder: PipelineFolder,
    job: Job,
    stopping: threading.Event,
    on_progress: OnProgress = lambda _: None,
    *,
    retry_s: float = RETRY_S,
) -> None:
    """Run a job; restart a continuous one after a retriable failure.

    Only if it has started: a broker that was never reachable is a wrong address.
    """
    while True:
        try:
            run_in_session(spark, folder, job, stopping, on_progress)
            return
        except Exception as error:
            failure = failure_of(error)
            if job.once or not failure.retriable or not folder.has_batches:
                raise
            waiting = msgspec.structs.replace(folder.progress(), state=State.WAITING, error=failure.message)
            folder.report(waiting)
            on_progress(waiting)
            if stopping.wait(retry_s):
                folder.report(msgspec.structs.replace(waiting, state=State.STOPPED))
                return


def run_in_session(
    spark: SparkSession,
    folder: PipelineFolder,
    job: Job,
    stopping: threading.Event,
    on_progress: OnProgress = lambda _: None,
) -> None:
    """Run a job in an existing session."""
    run = Run(spark, folder, job, stopping, on_progress)
    run.report(state=State.RUNNING, error="", hint="")
    job.run(run)
    run.report(state=State.STOPPED if run.is_stopping else State.DONE)


def _hush_spark() -> None:
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True  # it also prints the exception


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Turn the first SIGTERM or Ctrl-C into an event, so that a batch can finish; the second one stops at once."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def stop(number: int, _frame: object) -> None:
        if stopping.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
