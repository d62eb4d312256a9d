"""Reading and writing topics in Spark, on local[2], compared with the maximum of any Python source or sink.

The ceiling is measured in the same run: a source that yields one ready Arrow batch again and again, and a sink that
counts rows. The rest of the job is the same: a scan into Spark's `noop` sink, and rows that the JVM makes. CPU time is
that of Spark, the Java process and its Python workers; the broker runs beside it on the same two cores.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from benchmarks.processes import broker
from benchmarks.row import Row, row, show
from flymq import FlyMQClient
from flymq.spark.session import open_session
from flymq.spark.source.columns import full_schema

PARTITIONS = 4
BATCH_ROWS = 30_000
VALUE = b"x" * 100
_TICKS_PER_S = 100
_SETTINGS = {"retention.bytes": -1, "retention.ms": -1}


# --- the ceiling ----------------------------------------------------------------------------------------------------


class ReadySource(DataSource):
    """A source without cost: the columns of a topic, and one batch repeated."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        return full_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ReadyReader(schema, int(self.options["rows"]))


class _ReadyReader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // PARTITIONS) for _ in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        one = {"key": None, "value": VALUE, "topic": "bench", "partition": 0, "offset": 1, "timestamp": 0}
        row = {**one, "timestampType": 0}
        columns = [pa.array([row[field.name]] * BATCH_ROWS, field.type) for field in self._schema]
        ready = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        left = partition.value
        while left > 0:
            yield ready.slice(0, min(left, BATCH_ROWS))
            left -= BATCH_ROWS


class CountingSink(DataSource):
    """Takes rows and drops them."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _CountingWriter()


@dataclass
class _Counted(WriterCommitMessage):
    rows: int


class _CountingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Counted:
        return _Counted(sum(batch.num_rows for batch in iterator))


# --- measuring ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows by the clock and by CPU time."""

    per_s: float
    per_cpu_s: float


def java_of(spark: SparkSession) -> int:
    """Return the process id of the Java machine of a session."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a session of this process has one"
    return int(gateway.proc.pid)


def measured_rate(java: int, rows: int, work: Callable[[], object]) -> Rate:
    """Do some work on rows with the Java process of a session; return how fast that was."""
    cpu_before_s, before_s = _tree_cpu_s(java), time.perf_counter()
    work()
    return Rate(rows / (time.perf_counter() - before_s), rows / (_tree_cpu_s(java) - cpu_before_s))


def _tree_cpu_s(root: int) -> float:
    """Return the CPU time of a process and of all that it started, those that have ended too."""
    total = 0.0
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except FileNotFoundError:  # it has exited; its parent has its CPU time
            continue
        total += sum(map(int, fields[11:15])) / _TICKS_PER_S
    return total


def _beside(
    what: str, java: int, rows: int, rounds: int, *, ours: Callable[[], None], peer: str, ceiling: Callable[[], None]
) -> list[Row]:
    """Measure both in alternating rounds, so that noise affects both."""
    for work in (ours, ceiling):  # the first round starts workers
        work()
    pairs = [(measured_rate(java, rows, ours), measured_rate(java, rows, ceiling)) for _ in range(rounds)]
    units: dict[str, Callable[[Rate], float]] = {
        "rows/s": lambda rate: rate.per_s,
        "rows/CPU s": lambda rate: rate.per_cpu_s,
    }
    return [
        row(
            f"{what}, {unit}",
            median(pick(found) for found, _ in pairs),
            unit,
            peer=peer,
            peer_value=median(pick(limit) for _, limit in pairs),
            target=">= 0.6 of it",
        )
        for unit, pick in units.items()
    ]


def run(quick: bool = False) -> list[Row]:
    rows = 1_000_000 if quick else 4_000_000
    rounds = 1 if quick else 3
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    with broker() as measured, open_session("bench", master="local[2]") as spark:
        address = f"127.0.0.1:{measured.port}"
        java = java_of(spark)
        spark.dataSource.register(ReadySource)
        spark.dataSource.register(CountingSink)
        with FlyMQClient(address) as client:
            client.create_topic("bench", PARTITIONS, settings=_SETTINGS)
            for number in range(rows // 10_000):
                client.produce_batch("bench", [VALUE] * 10_000, partition=number % PARTITIONS)
            client.create_topic("bench-out", PARTITIONS, settings={"retention.bytes": 1 << 30})
        return [
            *_read(spark, java, address, rows, rounds),
            *_write(spark, java, address, rows, rounds),
        ]


def _read(spark: SparkSession, java: int, address: str, rows: int, rounds: int) -> list[Row]:
    def scan(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def ours() -> None:
        scan(spark.read.format("flymq").option("bootstrapServers", address).option("subscribe", "bench").load())

    def ceiling() -> None:
        scan(spark.read.format("ready").option("rows", rows).load())

    return _beside("read a topic", java, rows, rounds, ours=ours, peer="ready batches", ceiling=ceiling)


def _write(spark: SparkSession, java: int, address: str, rows: int, rounds: int) -> list[Row]:
    found: list[Row] = []
    for what, columns in (("values", []), ("keys and values", ["cast(id AS string) AS key"])):
        frame = spark.range(0, rows, numPartitions=PARTITIONS).selectExpr(
            f"repeat('x', {len(VALUE)}) AS value", *columns
        )

        def ours(frame: DataFrame = frame) -> None:
            sink = frame.write.format("flymq").option("bootstrapServers", address).option("topic", "bench-out")
            sink.mode("append").save()

        def ceiling(frame: DataFrame = frame) -> None:
            frame.write.format("counting").mode("append").save()

        name = f"write {what}, exactly once"
        found += _beside(name, java, rows, rounds, ours=ours, peer="counting sink", ceiling=ceiling)
    return found


if __name__ == "__main__":
    print(show(run("--quick" in sys.argv)))
