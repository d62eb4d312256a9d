"""The topology of a streams group (KIP-1071): how many tasks it has, and which internal topics must be created.

The topology names source topics, which must exist, and internal topics: *repartition topics*, which one subtopology
writes and another reads, and *changelogs*, which hold the state of a subtopology. How many partitions those need
follows from the topics that are there:

    repartition topic   as many as it says; or else as the largest topic that a subtopology which writes it reads;
                        all topics of a copartition group get the same number
    changelog           one per task: as many as the largest topic that the subtopology reads
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from flymq.coordination.entries import InternalTopicValue, SubtopologyValue, TopologyValue
from flymq.model.errors import InvalidTopology


class Status(IntEnum):
    """What a member has to know about its group, by Kafka's codes."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology and the topics that exist."""

    tasks: Mapping[str, int] = field(default_factory=dict)
    """Number of tasks of each subtopology; empty unless all topics are there."""
    missing: tuple[InternalTopicValue, ...] = ()
    """Internal topics that have to be created, with the number of their partitions."""
    status: Status | None = None
    detail: str = ""

    @property
    def is_ready(self) -> bool:
        return self.status is None


class _Incorrect(Exception):
    """Topics do not have the number of partitions that the topology needs."""


def configure(topology: TopologyValue, partition_counts: Mapping[str, int]) -> Configured:
    """Compare a topology with the topics that exist."""
    subtopologies = topology.subtopologies
    missing = sorted({topic for each in subtopologies for topic in each.sources if topic not in partition_counts})
    if missing:
        return Configured(status=Status.MISSING_SOURCE_TOPICS, detail=f"Source topics {_name(missing)} are missing.")
    try:
        counts = _count_partitions(subtopologies, partition_counts)
        wanted = _internal_topics(subtopologies, counts)
        for topic in wanted.values():
            found = partition_counts.get(topic.name, topic.partitions)
            if found != topic.partitions:
                raise _Incorrect(f"Existing topic {topic.name} has {found} partitions, expected {topic.partitions}")
    except _Incorrect as error:
        return Configured(status=Status.INCORRECTLY_PARTITIONED_TOPICS, detail=str(error))
    absent = tuple(topic for name, topic in sorted(wanted.items()) if name not in partition_counts)
    if absent:
        detail = f"Internal topics are missing: {_name([topic.name for topic in absent])}"
        return Configured(missing=absent, status=Status.MISSING_INTERNAL_TOPICS, detail=detail)
    return Configured({each.name: _task_count(each, counts) for each in subtopologies})


def check_topology(topology: TopologyValue) -> None:
    """Raise an error if a topology makes no sense, whatever topics exist."""
    for subtopology in topology.subtopologies:
        if not subtopology.topics:
            raise InvalidTopology(f"the subtopology {subtopology.name!r} reads no topics")
        for changelog in subtopology.changelogs:
            if changelog.partitions:
                raise InvalidTopology(f"the changelog {changelog.name!r} must not set its number of partitions")
    written = {name for each in topology.subtopologies for name in each.repartition_sinks}
    for topic in (topic for each in topology.subtopologies for topic in each.repartition_sources):
        if not topic.partitions and topic.name not in written:
            raise InvalidTopology(f"the repartition topic {topic.name!r} is read, but never written")
    # Every number of partitions must follow from another: with all sources there, nothing may be left open.
    _count_repartitions(topology.subtopologies, {topic: 1 for each in topology.subtopologies for topic in each.sources})


def _count_partitions(subtopologies: tuple[SubtopologyValue, ...], existing: Mapping[str, int]) -> dict[str, int]:
    """Return the number of partitions of all topics that tasks read, existing or to be created."""
    fixed = {topic.name for each in subtopologies for topic in each.repartition_sources if topic.partitions}
    repartitions = {topic.name for each in subtopologies for topic in each.repartition_sources}
    counts = _count_repartitions(subtopologies, existing)
    for group in (group for each in subtopologies for group in each.copartitioned if group):
        given = {topic: counts[topic] for topic in group if topic not in repartitions}
        given = given or {topic: counts[topic] for topic in group if topic in fixed}
        if len(set(given.values())) > 1:
            raise _Incorrect(
                f"Following topics do not have the same number of partitions: {dict(sorted(given.items()))}"
            )
        number = next(iter(given.values()), max(counts[topic] for topic in group))
        for topic in repartitions.intersection(group):
            if topic in fixed and counts[topic] != number:
                raise _Incorrect(f"The repartition topic {topic} has {counts[topic]} partitions, not {number}")
            counts[topic] = number
    return counts


def _count_repartitions(subtopologies: tuple[SubtopologyValue, ...], existing: Mapping[str, int]) -> dict[str, int]:
    counts = {topic: existing[topic] for each in subtopologies for topic in each.sources}
    for topic in (topic for each in subtopologies for topic in each.repartition_sources if topic.partitions):
        counts[topic.name] = topic.partitions
    readers: dict[str, list[SubtopologyValue]] = {}
    for each in subtopologies:
        for name in each.topics:
            readers.setdefault(name, []).append(each)
    due = deque(each for each in subtopologies if any(name in counts for name in each.topics))
    done: set[int] = set()
    while due:  # the first time decides: then all topics that it writes have their number
        each = due.popleft()
        if id(each) in done:
            continue
        done.add(id(each))
        size = max(counts[name] for name in each.topics if name in counts)
        for sink in each.repartition_sinks:
            if sink not in counts:
                counts[sink] = size
                due.extend(readers.get(sink, ()))
    if any(name not in counts for name in readers):
        raise InvalidTopology("the numbers of partitions of repartition topics depend on each other in a loop")
    return counts


def _internal_topics(
    subtopologies: tuple[SubtopologyValue, ...], counts: Mapping[str, int]
) -> dict[str, InternalTopicValue]:
    wanted: dict[str, InternalTopicValue] = {}
    for each in subtopologies:
        sizes = [(topic, counts[topic.name]) for topic in each.repartition_sources]
        sizes += [(topic, _task_count(each, counts)) for topic in each.changelogs]
        for topic, partitions in sizes:
            wanted[topic.name] = InternalTopicValue(topic.name, partitions, topic.replication_factor, topic.settings)
    return wanted


def _task_count(subtopology: SubtopologyValue, counts: Mapping[str, int]) -> int:
    return max(counts[topic] for topic in subtopology.topics)


def _name(topics: list[str], limit: int = 3) -> str:
    more = f" and {len(topics) - limit} additional topics" if len(topics) > limit else ""
    return ", ".join(topics[:limit]) + more
