"""Plan a restore: which records go to which partition, which are still to be written, and the offsets of groups.

The progress of a partition is not stored: it is the end offset of the target. Records are appended in order, so if the
target started at offset 40 and ends at 100, the first 60 selected records are restored, and a job that was killed
continues with the next one. That requires that no other producer writes to the target, which is checked.
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
    """What is restored into one partition."""

    source: TopicPartition
    target: TopicPartition
    pieces: Sequence[Piece]
    rows: int


class RestorePlan(NamedTuple):
    """What is restored, and the settings of the topics, by their new names."""

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
    """What one task writes: the selected records of a partition without the first `done`."""

    root: Path
    part: PartitionPlan
    selection: Selection
    done: int


def plan_restore(
    archive: Archive, topics: Sequence[str] = (), selection: Selection | None = None, *, rename: str | None = None
) -> RestorePlan:
    """Return what a restore of these topics, or of all, would write. Raises an error if the archive is damaged."""
    selection = selection or Selection()
    manifests = archive.manifests()
    pieces = by_partition(manifests)
    held = sorted({name.topic for name in pieces})
    wanted = sorted(set(topics) or held)
    if missing := [topic for topic in wanted if topic not in held]:
        there = f"It contains {', '.join(held)}." if held else "It is empty."
        raise NotInArchive(f"{archive.root} does not contain {', '.join(missing)}", hint=there)
    if rename is not None and len(wanted) != 1:
        raise InvalidPipeline(
            f"{len(wanted)} topics cannot all be renamed to {rename}", hint="Select one topic to rename."
        )
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
    """Return the latest settings of a topic; derived from its data if no manifest has them."""
    for manifest in reversed(manifests):
        if topic in manifest.topics:
            return manifest.topics[topic]
    return TopicState("", 1 + max(part.source.partition for part in parts if part.source.topic == topic))


def tasks_left(plan: RestorePlan, bases: Ends, ends: Ends) -> list[RestoreTask]:
    """Return what is still to be written to targets that ended at `bases` initially and end at `ends` now."""
    tasks: list[RestoreTask] = []
    for part in plan.partitions:
        done = ends[part.target] - bases[part.target]
        if not 0 <= done <= part.rows:
            raise TargetDisturbed(f"{part.target} has {done} new records, but only {part.rows} were to be restored")
        if done < part.rows:
            tasks.append(RestoreTask(plan.root, part, plan.selection, done))
    return tasks


def rows_left(task: RestoreTask) -> Iterator[pa.RecordBatch]:
    """Yield the records that a task has to write."""
    skip = task.done
    for batch in selected(task.root, task.part.pieces, task.selection):
        if skip < len(batch):
            yield batch.slice(skip)
        skip = max(0, skip - len(batch))


# --- groups ---------------------------------------------------------------------------------------------------------


def kept_groups(manifests: Iterable[Manifest], until_ms: int | None = None) -> GroupOffsets:
    """Return the committed offsets of groups from the latest manifest that has them, up to a time."""
    found: GroupOffsets = {}
    for manifest in manifests:
        if until_ms is None or manifest.created_ms <= until_ms:
            for group, topics in manifest.groups.items():
                found.setdefault(group, {}).update(topics)
    return found


def moved_groups(plan: RestorePlan, bases: Ends, groups: GroupOffsets) -> GroupOffsets:
    """Return the offsets of groups in the restored topics: before the same record, whatever its new offset is."""
    moved: GroupOffsets = {}
    for group, topics in groups.items():
        for part in plan.partitions:
            offset = topics.get(part.source.topic, {}).get(part.source.partition)
            if offset is not None:
                before = plan.selection.up_to(part.source.partition, offset)
                place = bases[part.target] + count_selected(plan.root, part.pieces, before)
                moved.setdefault(group, {}).setdefault(part.target.topic, {})[part.target.partition] = place
    return moved
