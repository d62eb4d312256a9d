"""The mirror job: copy a topic from another FlyMQ or Kafka-compatible cluster, exactly once.

Partitions, keys, values, headers, timestamps and the order within a partition are kept; offsets are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from flymq.spark.jobs.connection import Connection
from flymq.spark.jobs.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from flymq.spark.jobs.execution.runner import Run


class MirrorJob(Job, frozen=True, kw_only=True, tag="mirror", omit_defaults=True):
    """Copy a topic from another cluster."""

    topic: str
    to: str | None = None
    """The target topic, if its name differs."""
    source: Connection
    protocol: Literal["flymq", "kafka"] = "flymq"
    kafka_settings: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    """Additional settings of the Kafka client."""
    start: str = "earliest"
    batch_records: int = 1_000_000

    @property
    def default_name(self) -> str:
        return f"mirror-{self.topic}"[:100]

    def run(self, run: Run) -> None:
        target = self.to or self.topic
        records, partitions = self._kafka(run) if self.protocol == "kafka" else self._flymq(run)
        with self.broker.client() as client:
            made = client.admin.create_topic(target, partitions, exist_ok=True)
            if made.partitions < partitions:
                client.admin.add_partitions(target, partitions)
        columns = records.select("key", "value", "headers", "partition", "timestamp")
        run.write(columns, topic=target, includeTimestamp="true")

    def _flymq(self, run: Run) -> tuple[DataFrame, int]:
        with self.source.client() as client:
            partitions = len(client.admin.describe_topic(self.topic).partitions)
        records = run.read_from(
            self.source,
            subscribe=self.topic,
            startingOffsets=self.start,
            includeHeaders="true",
            maxOffsetsPerTrigger=self.batch_records,
        )
        return records, partitions

    def _kafka(self, run: Run) -> tuple[DataFrame, int]:
        from flymq.spark.jobs.kafka_source import KafkaStream, partition_count

        options = {
            **self.kafka_settings,
            "bootstrap.servers": self.source.server or "",
            "topic": self.topic,
            "start": self.start,
            "batch_records": str(self.batch_records),
        }
        run.spark.dataSource.register(KafkaStream)
        return run.spark.readStream.format(KafkaStream.name()).options(**options).load(), partition_count(options)
