"""Look up partitions and their offsets at the brokers: earliest, latest and by timestamp."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping

from flymq.client.aio.cluster import Cluster
from flymq.client.aio.failover import PATIENCE_S
from flymq.client.aio.offsets import list_offsets
from flymq.model.delivery import Isolation
from flymq.model.errors import InvalidOption, OffsetOutOfRange, PartitionNotFound, TopicNotFound
from flymq.model.names import TopicPartition
from flymq.spark.broker_connection import BrokerConnection
from flymq.spark.options import ReadOptions
from flymq.spark.source.filters import Bounds
from flymq.spark.source.offsets import Offsets, Wanted, parse_partitions, wanted_offsets, wanted_times, within
from flymq.wire.native.messages.records import AT_EARLIEST, AT_LATEST, Fetch, FetchAnswer, FetchPartition

LATEST = Wanted(AT_LATEST, {}, is_time=False, option="endingOffsets")
"""The default end of a batch."""


class Positions:
    """The current partitions and offsets of what a query reads."""

    def __init__(self, connection: BrokerConnection, options: ReadOptions) -> None:
        self._connection = connection
        self._options = options

    # --- which partitions

    def partitions(self, *, may_miss: bool = False) -> list[TopicPartition]:
        """Return the existing partitions to read; all must exist, unless some may be missing."""
        counts = {topic.name: topic.partitions for topic in self._connection.run(self._connection.admin.list_topics())}
        wanted = self._wanted(counts)
        if not may_miss:
            for name in wanted:
                _check_there(name, counts)
        return [name for name in wanted if name.partition < counts.get(name.topic, 0)]

    def _wanted(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        options = self._options
        if options.assign is not None:
            return parse_partitions("assign", options.assign)
        topics: Iterable[str] = options.subscribe
        if options.subscribe_pattern is not None:
            topics = _matching(options.subscribe_pattern, counts)
        return [TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 1))]

    # --- at which offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._at(dict.fromkeys(partitions, AT_EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end offsets: the high watermark, or the last stable offset for read_committed."""
        return self._at(dict.fromkeys(partitions, AT_LATEST))

    def start(self, wanted: Wanted, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the start offsets of a query."""
        found = self._resolved(wanted, partitions)
        for partition, offset in found.items():
            if offset >= 0:
                continue
            if self._options.starting_offsets_by_timestamp_strategy == "error":
                raise OffsetOutOfRange(
                    f"{partition} has no record with the timestamp of {wanted.option} or later",
                    hint="Use an earlier timestamp, or set startingOffsetsByTimestampStrategy to latest.",
                )
        return self._or_latest(found)

    def end(self, wanted: Wanted, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end offsets of a batch: the latest ones where no record has the timestamp or a later one."""
        return self._or_latest(self._resolved(wanted, partitions))

    def _resolved(self, wanted: Wanted, partitions: Iterable[TopicPartition]) -> Offsets:
        asked = wanted.at(partitions)
        if wanted.is_time:
            return self._at(asked)
        earliest, latest = self.earliest(asked), self.latest(asked)
        ends = {AT_EARLIEST: earliest, AT_LATEST: latest}
        numbers = {name: ends[at][name] if at in ends else at for name, at in asked.items()}
        fail = self._options.fail_on_data_loss
        return within(numbers, earliest, latest, option=wanted.option, fail_on_data_loss=fail)

    def _or_latest(self, found: Offsets) -> Offsets:
        missing = [name for name, offset in found.items() if offset < 0]
        return found | self.latest(missing) if missing else found

    def _at(self, wanted: Offsets) -> Offsets:
        return self._connection.run(_list(self._connection.cluster, wanted, self._options.isolation))

    def narrowed(self, start: Offsets, end: Offsets, bounds: Bounds) -> tuple[Offsets, Offsets]:
        """Return the part of these offset ranges that can match the filters.

        All records before the first one with a timestamp are older, so a lower bound on time is one on offsets. An
        upper bound is not: producers set the timestamps, and a later record may have an older one.
        """
        start, end = bounds.clip(start, end)
        if bounds.time_ms[0] > 0 and start:
            first = self._at(dict.fromkeys(start, bounds.time_ms[0]))
            first = {name: offset if offset >= 0 else end[name] for name, offset in first.items()}
            start = {name: max(offset, first[name]) for name, offset in start.items()}
        return start, end

    # --- waiting

    def wait_beyond(self, offsets: Offsets, wait_ms: int) -> None:
        """Wait until a partition has a record at its offset, the timeout is reached, or a broker disconnects."""
        self._connection.run(_wait_beyond(self._connection.cluster, offsets, wait_ms, self._options.isolation))


async def _list(cluster: Cluster, wanted: Offsets, isolation: Isolation) -> Offsets:
    for topic in {name.topic for name in wanted}:
        known = await cluster.retry(lambda topic=topic: cluster.topic(topic))  # type: ignore[misc]
        if any(name.partition >= len(known.partitions) for name in wanted if name.topic == topic):
            cluster.invalidate(topic)  # partitions were added
    found = await list_offsets(cluster, wanted, isolation)
    return {name: found[name].offset for name in wanted}


async def _wait_beyond(cluster: Cluster, offsets: Offsets, wait_ms: int, isolation: Isolation) -> None:
    """Long-poll the leaders: the first response is enough."""
    by_leader: dict[int, list[FetchPartition]] = {}
    for (topic, partition), offset in offsets.items():
        leader = cluster.leader(topic, partition)
        by_leader.setdefault(leader, []).append(FetchPartition(topic, partition, offset, max_bytes=1))
    answers = [
        asyncio.create_task(
            cluster.tell(Fetch(partitions=parts, max_wait_ms=wait_ms, isolation=isolation), FetchAnswer, broker=leader)
        )
        for leader, parts in by_leader.items()
    ]
    if not answers:
        await asyncio.sleep(wait_ms / 1000)
        return
    timeout_s = wait_ms / 1000 + PATIENCE_S  # a silent leader may have been replaced: the next request finds out
    _, waiting = await asyncio.wait(answers, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for answer in waiting:
        answer.cancel()
    # Errors are ignored here: the next request reports them, and is retried.
    await asyncio.gather(*answers, return_exceptions=True)


def _check_there(name: TopicPartition, counts: Mapping[str, int]) -> None:
    topic, partition = name
    if topic not in counts:
        raise TopicNotFound(f"the topic {topic!r} does not exist")
    if partition >= counts[topic]:
        raise PartitionNotFound(f"topic {topic!r} has the partitions 0 to {counts[topic] - 1}, not {partition}")


def _matching(pattern: str, topics: Iterable[str]) -> list[str]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise InvalidOption(f"subscribePattern is not a valid regular expression: {error}") from None
    return [topic for topic in topics if expression.fullmatch(topic)]


def wanted_start(options: ReadOptions, *, default: str) -> Wanted:
    """Return the start position from the options. Precedence: one timestamp, timestamps per partition, offsets."""
    if options.starting_timestamp is not None:
        return Wanted(options.starting_timestamp, {}, is_time=True, option="startingTimestamp")
    if options.starting_offsets_by_timestamp is not None:
        return wanted_times("startingOffsetsByTimestamp", options.starting_offsets_by_timestamp)
    return wanted_offsets("startingOffsets", options.starting_offsets or default)


def wanted_end(options: ReadOptions) -> Wanted:
    """Return the end position from the options."""
    if options.ending_timestamp is not None:
        return Wanted(options.ending_timestamp, {}, is_time=True, option="endingTimestamp")
    if options.ending_offsets_by_timestamp is not None:
        return wanted_times("endingOffsetsByTimestamp", options.ending_offsets_by_timestamp)
    return wanted_offsets("endingOffsets", options.ending_offsets)
