"""The same source and sink on a standalone cluster of one master and two workers, and through Spark Connect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from tests.ports import free_port

from flymq import FlyMQClient
from flymq.spark.session import spark_environment
from flymq.testing import TestBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 400
SPARK_HOME = Path(pyspark.__file__).parent


def until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"it took too long until {what}"
        time.sleep(0.05)


@contextmanager
def process(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        started = subprocess.Popen(command, env=os.environ | environment, stdout=out, stderr=out)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@contextmanager
def program(source: str, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a driver program; its output is in driver.log."""
    file = folder / "driver.py"
    file.write_text(textwrap.dedent(source))
    with process([sys.executable, str(file), *arguments], {}, folder / "driver.log") as driver:
        yield driver


def finish(driver: subprocess.Popen[bytes], folder: Path) -> None:
    assert driver.wait(PATIENCE_S) == 0, (folder / "driver.log").read_text()[-4000:]


def written(client: FlyMQClient, topic: str, partitions: int) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(partitions):
        offset = 0
        while records := client.fetch(topic, partition, offset):
            found += [record.value for record in records]
            offset = records[-1].offset + 1
    return sorted(found)


COPY = """
    import sys, time
    from flymq.spark.session import open_session

    master, address, source, target, checkpoint = sys.argv[1:]

    def slowly(batches):
        for batch in batches:
            time.sleep(0.3)
            yield batch

    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    with open_session("copy", master=master, settings=settings) as spark:
        spark.sparkContext.setLogLevel("WARN")
        options = {"bootstrapServers": address, "subscribe": source, "startingOffsets": "earliest"}
        stream = spark.readStream.format("flymq").options(**options, maxOffsetsPerTrigger=60).load()
        sink = stream.mapInArrow(slowly, stream.schema).drop("partition").writeStream.format("flymq")
        sink = sink.options(bootstrapServers=address, topic=target, checkpointLocation=checkpoint)
        sink.trigger(availableNow=True).start().awaitTermination()
"""


def test_an_executor_killed_in_mid_query_leaves_each_row_once(
    broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-copy"
    client.create_topic(target, partitions=2)
    sent = sorted(b"%d" % number for number in range(400))
    client.produce_batch(topic, [(value, value) for value in sent])
    master = f"spark://127.0.0.1:{free_port()}"
    environment = spark_environment(master) | {"SPARK_WORKER_DIR": str(tmp_path / "work")}
    daemon = [str(SPARK_HOME / "bin" / "spark-class")]
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        port = master.rpartition(":")[2]
        command = [*daemon, "org.apache.spark.deploy.master.Master", *place, "--port", port]
        running.enter_context(process(command, environment, tmp_path / "master.log"))
        workers = []
        for number in range(2):
            resources = ["--cores", "1", "--memory", "1g"]
            command = [*daemon, "org.apache.spark.deploy.worker.Worker", *place, *resources, master]
            workers.append(running.enter_context(process(command, environment, tmp_path / f"worker{number}.log")))
        arguments = (master, broker.address, topic, target, str(tmp_path / "checkpoint"))
        driver = running.enter_context(program(COPY, tmp_path, *arguments))
        until(lambda: driver.poll() is not None or written(client, target, 2), "the first batch was committed")
        victims = children(workers[0].pid)
        assert driver.poll() is None and victims, (tmp_path / "driver.log").read_text()[-4000:]
        os.kill(victims[0], signal.SIGKILL)
        finish(driver, tmp_path)
    assert written(client, target, 2) == sent


CONNECT = """
    import sys
    from pyspark.sql import SparkSession
    from flymq.spark.session import spark_environment
    import os

    os.environ.update(spark_environment("local[2]"))
    address, source, target, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    options = {"bootstrapServers": address, "subscribe": source}
    frame = spark.read.format("flymq").options(**options).load()
    assert type(frame).__module__ == "pyspark.sql.connect.dataframe"
    frame.drop("partition").write.format("flymq").options(bootstrapServers=address, topic=target).mode("append").save()
    stream = spark.readStream.format("flymq").options(**options, startingOffsets="earliest").load()
    sink = stream.drop("partition").writeStream.format("flymq").options(bootstrapServers=address, topic=target)
    sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.stop()
"""


def test_spark_connect_reads_and_writes_topics(
    broker: TestBroker, client: FlyMQClient, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-copy"
    client.create_topic(target, partitions=2)
    sent = [b"%d" % number for number in range(100)]
    client.produce_batch(topic, [(value, value) for value in sent])
    with program(CONNECT, tmp_path, broker.address, topic, target, str(tmp_path / "checkpoint")) as driver:
        finish(driver, tmp_path)
    assert written(client, target, 2) == sorted(sent * 2)
