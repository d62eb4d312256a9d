"""Plan a restore: which records go to which partition, what is left of it, and where groups stand afterwards.

How far a partition has come is written nowhere: the end of the target says it. Records go in one after another, so if
the target began at offset 40 and ends at 100, the first 60 wanted records are there, and a job that was killed goes on
with the next one. That holds as long as nobody else writes to the target, which is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from flymq.model.errors import InvalidPipeline, NotInArchive, TargetDisturbed
from flymq.model.names import TopicPartition
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.files import check_presence
from flymq.spark.archive.manifest import GroupOffsets, Manifest, Piece, TopicState, by_partition
from flymq.spark.archive.selection import Selection, count_selected, selected

Ends = Mapping[TopicPartition, int]


class PartitionPlan(NamedTuple):
    """What comes back into one partition."""

    source: TopicPartition
    target: TopicPartition
    pieces: Sequence[Piece]
    rows: int


class RestorePlan(NamedTuple):
    """What comes back, and how the topics were set, by their new names."""

    root: Path
    selection: Selection
    partitions: Sequence[PartitionPlan]
    topics: Mapping[str, TopicState]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.partitions)

    def of_topic(self, target: str) -> list[PartitionPlan]:
        return [part for part in self.partitions if part.target.topic == target]


class RestoreTask(NamedTuple):
    """What one task writes: the wanted records of a partition but the first `done`."""

    root: Path
    part: PartitionPlan
    selection: Selection
    done: int


def plan_restore(
    archive: Archive, topics: Sequence[str] = (), selection: Selection | None = None, *, rename: str | None = None
) -> RestorePlan:
    """Return what a restore of these topics would write; of all if none is named. Damage that shows is raised."""
    selection = selection or Selection()
    manifests = archive.manifests()
    pieces = by_partition(manifests)
    held = sorted({name.topic for name in pieces})
    wanted = sorted(set(topics) or held)
    if missing := [topic for topic in wanted if topic not in held]:
        there = f"It holds {', '.join(held)}." if held else "It holds nothing yet."
        raise NotInArchive(f"{archive.root} does not hold {', '.join(missing)}", hint=there)
    if rename is not None and len(wanted) != 1:
        raise InvalidPipeline(f"{len(wanted)} topics cannot all become {rename}", hint="Name one topic to be renamed.")
    for name, of_partition in pieces.items():
        for piece in of_partition if name.topic in wanted else ():
            if not selection.takes_none(piece):
                check_presence(archive.root, piece)
    parts = [
        PartitionPlan(
            source=name,
            target=TopicPartition(rename or name.topic, name.partition),
            pieces=of_partition,
            rows=count_selected(archive.root, of_partition, selection),
        )
        for name, of_partition in pieces.items()
        if name.topic in wanted
    ]
    states = {rename or topic: _state(manifests, topic, parts) for topic in wanted}
    return RestorePlan(archive.root, selection, parts, states)


def _state(manifests: Sequence[Manifest], topic: str, parts: Sequence[PartitionPlan]) -> TopicState:
    """Return how a topic was set last; if it was gone before a manifest could tell, what its data tells."""
    for manifest in reversed(manifests):
        if topic in manifest.topics:
            return manifest.topics[topic]
    return TopicState("", 1 + max(part.source.partition for part in parts if part.source.topic == topic))


def tasks_left(plan: RestorePlan, bases: Ends, ends: Ends) -> list[RestoreTask]:
    """Return what is still to be written to targets that ended at `bases` at first and end at `ends` now."""
    tasks: list[RestoreTask] = []
    for part in plan.partitions:
        done = ends[part.target] - bases[part.target]
        if not 0 <= done <= part.rows:
            raise TargetDisturbed(f"{part.target} has {done} new records where {part.rows} were to be restored")
        if done < part.rows:
            tasks.append(RestoreTask(plan.root, part, plan.selection, done))
    return tasks


def rows_left(task: RestoreTask) -> Iterator[pa.RecordBatch]:
    """Yield the records that a task is to write."""
    skip = task.done
    for batch in selected(task.root, task.part.pieces, task.selection):
        if skip < len(batch):
            yield batch.slice(skip)
        skip = max(0, skip - len(batch))


# --- groups ---------------------------------------------------------------------------------------------------------


def kept_groups(manifests: Iterable[Manifest], until_ms: int | None = None) -> GroupOffsets:
    """Return how far groups had read, by the last manifest that tells, of those made up to a time."""
    found: GroupOffsets = {}
    for manifest in manifests:
        if until_ms is None or manifest.created_ms <= until_ms:
            for group, topics in manifest.groups.items():
                found.setdefault(group, {}).update(topics)
    return found


def moved_groups(plan: RestorePlan, bases: Ends, groups: GroupOffsets) -> GroupOffsets:
    """Return where groups stand in the restored topics: before the same record, whatever its offset is now."""
    moved: GroupOffsets = {}
    for group, topics in groups.items():
        for part in plan.partitions:
            offset = topics.get(part.source.topic, {}).get(part.source.partition)
            if offset is not None:
                before = plan.selection.up_to(part.source.partition, offset)
                place = bases[part.target] + count_selected(plan.root, part.pieces, before)
                moved.setdefault(group, {}).setdefault(part.target.topic, {})[part.target.partition] = place
    return moved
