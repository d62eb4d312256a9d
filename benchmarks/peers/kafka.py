"""Apache Kafka: one broker that is its own controller, run from the jars of the release.

Maven fetches the jars into the cache directory; starting them takes no other script. The broker keeps its own defaults
but for what one machine needs (replication of 1) and for the promise.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.peers.cache import cache, command
from benchmarks.peers.contender import Contender, Promise, free_port, process
from benchmarks.peers.kafka_topic import KafkaTopic, is_led

VERSION = "4.3.1"
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
_CLUSTER_ID = "flymqBenchmarkClusterA"
_SETTINGS = {
    Promise.PROCESS: "acks=1, the page cache (defaults)",
    Promise.MACHINE: "acks=1, flush.messages=1: an fsync before each answer",
}
_numbers = itertools.count()


class Kafka:
    name = "Apache Kafka"

    @property
    def _jars(self) -> Path:
        return cache() / f"kafka-{VERSION}"

    def missing(self) -> str | None:
        if not shutil.which("java"):
            return "no `java` is on the path (17 or newer)"
        if not list(self._jars.glob("kafka_*.jar")):
            return "its jars are not in the cache directory: `python -m benchmarks.peers install`, which needs Maven"
        return None

    def install(self) -> None:
        self._jars.mkdir(exist_ok=True)
        pom = self._jars / "pom.xml"
        pom.write_text(_POM.format(version=VERSION))
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={self._jars}")
        command("mvn", "--quiet", "--batch-mode", "--file", pom, *goal)

    def version(self) -> str:
        return VERSION

    def command(self, properties: Path, heap: str = "1g") -> list[str]:
        """Prepare the data directory that `properties` names; return what starts a broker."""
        java = ["java", f"-Xms{heap}", f"-Xmx{heap}", "-cp", f"{self._jars}/*"]
        formatting = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
        subprocess.run(formatting, check=True, capture_output=True)
        return [*java, "kafka.Kafka", str(properties)]

    @contextmanager
    def running(self, promise: Promise, folder: Path) -> Iterator[list[Contender]]:
        port = free_port()
        properties = folder / "server.properties"
        properties.write_text(_PROPERTIES.format(port=port, controller=free_port(), data=folder / "data"))
        with process(self.command(properties), port, folder) as measured:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            yield [Contender(self.name, _SETTINGS[promise], measured, lambda: _open(admin, port, promise))]


def _open(admin: AdminClient, port: int, promise: Promise) -> KafkaTopic:
    name = f"bench-{next(_numbers)}"
    config = {"flush.messages": "1"} if promise is Promise.MACHINE else {}
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result()
    while not is_led(port, name):
        time.sleep(0.02)
    return KafkaTopic(port, name, lambda: admin.delete_topics([name])[name].result())
