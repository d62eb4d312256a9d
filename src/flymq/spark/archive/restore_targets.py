"""The topics to restore into: created or checked first, written by tasks, then given their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from flymq.client.descriptions import TopicDescription
from flymq.client.sync.client import FlyMQClient
from flymq.model.delivery import CleanupPolicy, TimestampType
from flymq.model.errors import InvalidPipeline, TargetNotEmpty, TopicNotFound
from flymq.model.names import TopicPartition
from flymq.model.topic_config import UNLIMITED
from flymq.spark.archive.manifest import Settings, TopicState
from flymq.spark.archive.restore_plan import PartitionPlan, RestorePlan, RestoreTask, rows_left

WHILE_RESTORING: Settings = {
    "message.timestamp.type": TimestampType.CREATE.value,
    "cleanup.policy": CleanupPolicy.DELETE.value,
    "retention.ms": UNLIMITED,
    "retention.bytes": UNLIMITED,
}
"""Otherwise the broker would set new timestamps, or delete old records during the restore."""


def missing_targets(client: FlyMQClient, plan: RestorePlan, *, append: bool) -> list[str]:
    """Return the topics that must be created; reject existing ones that cannot be restored into."""
    missing: list[str] = []
    for topic in plan.topics:
        try:
            found = client.admin.describe_topic(topic)
        except TopicNotFound:
            missing.append(topic)
        else:
            _check(found, plan.of_topic(topic), append=append)
    return missing


def make_targets(client: FlyMQClient, plan: RestorePlan, topics: Iterable[str]) -> None:
    """Create these topics, unless that was done before a crash."""
    for topic in topics:
        state = plan.topics[topic]
        settings = {**state.settings, **WHILE_RESTORING}
        client.admin.create_topic(topic, state.partitions, settings=settings, exist_ok=True)


def _check(found: TopicDescription, parts: list[PartitionPlan], *, append: bool) -> None:
    if not append and any(part.end_offset > part.start_offset for part in found.partitions):
        raise TargetNotEmpty(f"the topic {found.name} already has records")
    if found.settings.get("message.timestamp.type") == TimestampType.LOG_APPEND.value:
        raise InvalidPipeline(
            f"the topic {found.name} would overwrite the records' timestamps",
            hint=f"Before: flymq topic alter {found.name} --set message.timestamp.type={TimestampType.CREATE.value}",
        )
    needed = 1 + max(part.target.partition for part in parts)
    if len(found.partitions) < needed:
        raise InvalidPipeline(
            f"the topic {found.name} has {len(found.partitions)} partitions; {needed} are needed",
            hint=f"flymq topic add-partitions {found.name} --total {needed}",
        )


def target_ends(client: FlyMQClient, plan: RestorePlan, *, missing: Iterable[str] = ()) -> dict[TopicPartition, int]:
    """Return the current end offsets of the targets; 0 for topics that do not exist."""
    ends: dict[TopicPartition, int] = {}
    for topic in plan.topics.keys() - set(missing):
        ends |= client.admin.latest_offsets(topic)
    return {part.target: ends.get(part.target, 0) for part in plan.partitions}


def close_targets(client: FlyMQClient, plan: RestorePlan, made: Iterable[str], now_ms: int) -> list[str]:
    """Apply their settings to the created topics; return notes about those that were not applied.

    Retention that would immediately delete restored records stays disabled.
    """
    notes: list[str] = []
    for topic in made:
        state = plan.topics[topic]
        size_bytes = max(part.size_bytes for part in client.admin.describe_topic(topic).partitions)
        strict = _too_strict(state, plan.of_topic(topic), now_ms, size_bytes)
        own = {name: state.settings.get(name) for name in WHILE_RESTORING if name not in strict}
        client.admin.alter_topic(topic, own)
        if strict:
            back = " ".join(f"--set {name}={state.in_force[name]}" for name in strict)
            notes.append(
                f"retention of {topic} is off to keep its old records; to turn it on: flymq topic alter {topic} {back}"
            )
    return notes


def _too_strict(state: TopicState, parts: Sequence[PartitionPlan], now_ms: int, size_bytes: int) -> list[str]:
    """Return the retention settings that would delete restored records."""
    oldest_ms = min((piece.min_timestamp_ms for part in parts for piece in part.pieces if piece.rows), default=now_ms)
    needed = {"retention.ms": now_ms - oldest_ms, "retention.bytes": size_bytes}
    limits = {name: int(state.in_force.get(name) or UNLIMITED) for name in needed}
    return [name for name, limit in limits.items() if limit != UNLIMITED and needed[name] > limit]


# --- in tasks -------------------------------------------------------------------------------------------------------


def restore_partition(task: RestoreTask, options: Mapping[str, str]) -> int:
    """Write the remaining records of one partition; return their number. `options` are those of the sink."""
    from flymq.spark.broker_connection import connect
    from flymq.spark.error_messages import hints_in_errors
    from flymq.spark.options import parse_write_options
    from flymq.spark.sink.producing import AttemptProducer

    written = {**options, "topic": task.part.target.topic, "includeTimestamp": "true", "delivery": "at_least_once"}
    parsed = parse_write_options(written)
    connection = connect(parsed.connection(), expects_broker=True)
    producer = AttemptProducer(connection, parsed, transactional_id="", first_turn=0)
    with hints_in_errors():
        for batch in rows_left(task):
            producer.write(_as_sink_rows(batch, task.part.target.partition))
        producer.finish()
    return producer.row_count


def _as_sink_rows(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": batch.column("key"),
            "value": batch.column("value"),
            "headers": batch.column("headers"),
            "timestamp": batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")),
            "partition": pa.array(np.full(len(batch), partition, np.int32)),
        }
    )
