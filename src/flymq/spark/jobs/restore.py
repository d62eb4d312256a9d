"""The restore job: write the records of an archive to topics, up to a point in time, byte for byte and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from flymq.client.sync.client import FlyMQClient
from flymq.host.clock import SystemClock
from flymq.host.disk import SystemDisk, replace_file
from flymq.model.errors import GroupNotEmpty, TargetDisturbed
from flymq.model.names import TopicPartition
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.restore_plan import (
    RestorePlan,
    RestoreTask,
    kept_groups,
    moved_groups,
    plan_restore,
    tasks_left,
)
from flymq.spark.archive.restore_targets import (
    close_targets,
    make_targets,
    missing_targets,
    restore_partition,
    target_ends,
)
from flymq.spark.archive.selection import Selection
from flymq.spark.jobs.job import Job

if TYPE_CHECKING:
    from flymq.spark.jobs.execution.pipeline_state import PipelineFolder
    from flymq.spark.jobs.execution.runner import Run

RESTORE_START = "restore.json"
"""The checkpoint of a restore, in place of Spark's."""

_LOOK_EVERY_S = 0.5


class RestoreJob(Job, frozen=True, kw_only=True, tag="restore", omit_defaults=True):
    """Restore topics from an archive. After being killed and restarted, it continues with the next record."""

    archive: str
    topics: list[str] = []  # noqa: RUF012 - msgspec copies it
    """All topics of the archive if empty."""
    to: str | None = None
    """New name of the single topic."""
    selection: Selection = Selection()
    append: bool = False
    groups: bool = False
    """Whether to restore committed offsets too, each before the record that the group would have read next."""

    @property
    def default_name(self) -> str:
        return f"restore-{self.to or '-'.join(self.topics) or Path(self.archive).name}"[:100]

    def plan(self) -> RestorePlan:
        """Return what the job would write. Requires neither Spark nor a broker."""
        return plan_restore(Archive.open(Path(self.archive)), self.topics, self.selection, rename=self.to)

    def run(self, run: Run) -> None:
        plan = self.plan()
        with self.broker.client() as client:
            start = _Start.of(run.folder) or _Start.make(run.folder, client, plan, append=self.append)
            make_targets(client, plan, start.made)
            bases = start.ends()
            tasks = tasks_left(plan, bases, target_ends(client, plan))
            for ends in _restoring(run, client, plan, tasks, self.broker.options()) if tasks else ():
                done = sum(ends[name] - base for name, base in bases.items())
                run.report(records=done, behind=plan.rows - done)
            if run.is_stopping:
                return
            if tasks_left(plan, bases, target_ends(client, plan)):
                raise TargetDisturbed("some written records are not in the topic")
            notes = close_targets(client, plan, start.made, SystemClock().now_ms())
            if self.groups:
                notes += self._restore_groups(client, plan, bases)
            run.report(records=plan.rows, behind=0, note="\n".join(notes))

    def _restore_groups(self, client: FlyMQClient, plan: RestorePlan, bases: dict[TopicPartition, int]) -> list[str]:
        notes: list[str] = []
        kept = kept_groups(Archive.open(Path(self.archive)).manifests(), self.selection.until_ms)
        for group, topics in moved_groups(plan, bases, kept).items():
            try:
                for topic, offsets in topics.items():
                    client.admin.reset_offsets(group, topic, offsets)
            except GroupNotEmpty as error:
                notes.append(f"the offsets of {group} were not restored: {error.message}")
        return notes


class _Start(Struct, frozen=True):
    """The end offsets of the targets before the first write, stored to continue after a crash."""

    made: list[str]
    bases: dict[str, dict[int, int]]

    @classmethod
    def of(cls, folder: PipelineFolder) -> _Start | None:
        path = folder.checkpoint / RESTORE_START
        return msgspec.json.decode(SystemDisk().read(path), type=cls) if path.exists() else None

    @classmethod
    def make(cls, folder: PipelineFolder, client: FlyMQClient, plan: RestorePlan, *, append: bool) -> _Start:
        missing = missing_targets(client, plan, append=append)
        bases: dict[str, dict[int, int]] = {}
        for (topic, partition), end in target_ends(client, plan, missing=missing).items():
            bases.setdefault(topic, {})[partition] = end
        start = cls(missing, bases)
        SystemDisk().make_directory(folder.checkpoint)
        replace_file(SystemDisk(), folder.checkpoint / RESTORE_START, msgspec.json.encode(start))
        return start

    def ends(self) -> dict[TopicPartition, int]:
        return {TopicPartition(topic, n): end for topic, ends in self.bases.items() for n, end in ends.items()}


def _restoring(
    run: Run, client: FlyMQClient, plan: RestorePlan, tasks: Sequence[RestoreTask], options: dict[str, str]
) -> Iterator[dict[TopicPartition, int]]:
    """Run the tasks on Spark; yield the end offsets of the targets periodically, until done or stopping."""
    context = run.spark.sparkContext
    group = run.folder.name

    def work() -> None:
        context.setJobGroup(group, f"restore {plan.rows} records", interruptOnCancel=True)
        context.parallelize(tasks, len(tasks)).map(partial(restore_partition, options=options)).collect()

    with ThreadPoolExecutor(1) as thread:
        working = thread.submit(work)
        try:
            while wait([working], _LOOK_EVERY_S).not_done and not run.is_stopping:
                yield target_ends(client, plan)
        finally:
            if not working.done():
                context.cancelJobGroup(group)
        if not run.is_stopping:
            working.result()
