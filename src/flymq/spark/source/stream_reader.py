"""`spark.readStream.format("flymq")`: micro-batches of new records.

    initialOffset ──▶ latestOffset(start, limit) ──▶ partitions(start, end) ──▶ read in tasks ──▶ latestOffset(end, …)

Spark stores the offsets in the checkpoint and calls these methods sequentially in one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from flymq.host.clock import SystemClock
from flymq.model.errors import InvalidOption
from flymq.model.names import TopicPartition
from flymq.spark.broker_connection import connect
from flymq.spark.error_messages import hints_in_errors
from flymq.spark.options import ReadOptions
from flymq.spark.source.groups import group_of, publish
from flymq.spark.source.offsets import Offsets, from_spark, lost, to_spark
from flymq.spark.source.planning import count_between, cut, limited, ranges_between
from flymq.spark.source.positions import LATEST, Positions, wanted_end, wanted_start
from flymq.spark.source.reading import read_range

IDLE_WAIT_MS = 500
"""Long-poll timeout of an idle query: Spark would otherwise poll 70 times a second."""

SparkOffset = Mapping[str, Mapping[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads their ranges."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if wanted_end(options) != LATEST:
            raise InvalidOption("ending offsets and timestamps are only for batch queries")
        self._options = options
        self._schema = schema
        self._start = wanted_start(options, default="latest")
        self._target: Offsets | None = None
        self._published: Offsets = {}
        self._latest: Offsets = {}
        self._last_trigger_s: float | None = None

    # --- offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with hints_in_errors():
            positions = self._positions()
            return to_spark(positions.start(self._start, positions.partitions()))

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        with hints_in_errors():
            begin = from_spark(start)
            self._publish(begin)
            begin, latest = self._seen(begin)
            end = self._admitted(begin, latest, limit)
            if self._target is None and end == begin:
                self._positions().wait_beyond(latest, IDLE_WAIT_MS)
                begin, latest = self._seen(begin)
                end = self._admitted(begin, latest, limit)
            return to_spark(end)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the query's progress report: the last known offsets, since a report must neither fail nor block."""
        return to_spark(self._latest) if self._latest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with hints_in_errors():
            self._target = self._positions().latest(self._there())

    # --- reading

    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[InputPartition]:
        with hints_in_errors():
            ranges = ranges_between(*self._readable(from_spark(start), from_spark(end)))
        options = self._options
        pieces = cut(ranges, partitions_min=options.min_partitions, records_max=options.max_records_per_partition)
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, self._schema, partition.value)

    def commit(self, end: SparkOffset) -> None:
        self._publish(from_spark(end))

    # --- internals

    def _positions(self) -> Positions:
        return Positions(connect(self._options.connection()), self._options)

    def _there(self) -> list[TopicPartition]:
        """Return the existing partitions; a deleted topic is data loss, which is skipped or fails the query."""
        return self._positions().partitions(may_miss=not self._options.fail_on_data_loss)

    def _seen(self, start: Offsets) -> tuple[Offsets, Offsets]:
        """Return the start and the maximum end of the next micro-batch, for every partition.

        A new partition starts at its first record. A deleted one stays at its last offset: no data, or a failure.
        """
        positions = self._positions()
        partitions = self._there()
        if gone := sorted(start.keys() - set(partitions)):
            self._lose(f"{', '.join(map(str, gone))} of this query no longer exist")
        if self._target is not None:
            partitions = [name for name in partitions if name in self._target]
        latest = positions.latest(partitions)
        self._latest = latest
        if self._target is not None:
            latest = {name: min(offset, self._target[name]) for name, offset in latest.items()}
        new = [name for name in partitions if name not in start]
        stays = {name: start[name] for name in start if name not in latest}
        return start | positions.earliest(new), latest | stays

    def _admitted(self, start: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end of the next micro-batch: the start while there are too few offsets, and within the limit."""
        minimum = self._options.min_offsets_per_trigger
        is_limited = self._target is None and not isinstance(limit, ReadAllAvailable)
        if is_limited and minimum is not None and not self._is_due(count_between(start, latest), minimum):
            return {name: min(start[name], latest[name]) for name in start if name in latest}
        return limited(start, latest, limit.max_rows) if isinstance(limit, ReadMaxRows) else latest

    def _is_due(self, waiting: int, minimum: int) -> bool:
        """Whether there are enough offsets, or the maximum delay has passed. The first micro-batch does not wait."""
        now_s = SystemClock().monotonic_s()
        last_s = self._last_trigger_s
        is_late = last_s is None or now_s - last_s >= self._options.max_trigger_delay / 1000
        if waiting < minimum and not is_late:
            return False
        self._last_trigger_s = now_s
        return True

    def _readable(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Return the readable range of each partition, after reporting lost data."""
        there = [name for name in self._there() if name in end]
        earliest = self._positions().earliest(there)
        begin = {name: self._begin_of(name, start, end, earliest[name]) for name in there}
        return begin, {name: end[name] for name in there}

    def _begin_of(self, name: TopicPartition, start: Offsets, end: Offsets, earliest: int) -> int:
        wanted = start.get(name, 0)
        if wanted > end[name]:
            self._lose(f"{name} was read up to {wanted}, but now ends at {end[name]}")
            return earliest
        if wanted < earliest and wanted < end[name]:
            self._lose(f"{name} no longer has the offsets {wanted} to {earliest - 1}")
        return min(max(wanted, earliest), end[name])

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise lost(what)

    def _publish(self, offsets: Offsets) -> None:
        group = group_of(self._options)
        if group is not None and offsets != self._published:
            self._published = offsets
            publish(connect(self._options.connection()), group, offsets)
