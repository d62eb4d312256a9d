"""Restore a broker from a backup: topics with their settings and records, and the offsets of groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flymq.client.sync.client import FlyMQClient
from flymq.model.errors import GroupNotEmpty, NotInArchive, TopicExists
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.manifest import GroupOffsets
from flymq.spark.archive.restore_plan import moved_groups, plan_restore
from flymq.spark.backup.check import require_whole
from flymq.spark.backup.contents import Backup
from flymq.spark.backup.create import run_job
from flymq.spark.jobs.connection import Connection
from flymq.spark.jobs.execution.runner import OnProgress
from flymq.spark.jobs.restore import RestoreJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def restore_backup(
    spark: SparkSession,
    root: Path,
    broker: Connection,
    topics: Sequence[str] = (),
    *,
    replace: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> list[str]:
    """Restore these topics of a backup, or all; return notes for the user. The backup is verified first.

    With `replace`, existing topics with the same names are deleted first, with all their records.
    """
    backup = require_whole(root)
    wanted = chosen_topics(backup, topics)
    with broker.client() as client:
        for topic in existing_topics(client, wanted, allowed=replace):
            client.delete_topic(topic)
        full = [topic for topic in wanted if topic in backup.partitions]
        for topic in wanted:
            if topic not in full:
                state = backup.topics[topic]
                client.admin.create_topic(topic, state.partitions, settings=state.settings)
        notes = []
        if full and (said := run_job(spark, RestoreJob(broker=broker, archive=str(root), topics=full), on_progress)):
            notes.append(said)
        return notes + _restore_groups(client, group_places(root, backup, wanted))


def chosen_topics(backup: Backup, topics: Sequence[str]) -> list[str]:
    """Return the topics to restore, or raise NotInArchive for one that is not in the backup."""
    if missing := sorted(set(topics) - backup.topics.keys()):
        held = ", ".join(sorted(backup.topics)) or "no topic"
        raise NotInArchive(f"the backup does not contain {', '.join(missing)}", hint=f"It contains {held}.")
    return sorted(set(topics) or backup.topics)


def existing_topics(client: FlyMQClient, wanted: Sequence[str], *, allowed: bool) -> list[str]:
    """Return which of the topics exist; raise an error for them unless they are to be replaced."""
    there = sorted(set(wanted) & set(client.list_topics()))
    if there and not allowed:
        raise TopicExists(
            f"{', '.join(there)} already {'exists' if len(there) == 1 else 'exist'}",
            hint="Restore into an empty broker, select topics with --topic, or replace existing ones with --replace.",
        )
    return there


def group_places(root: Path, backup: Backup, topics: Sequence[str]) -> GroupOffsets:
    """Return the offsets of groups in the restored topics: before the record that they would have read next.

    Restored offsets start at 0 and have no gaps. A partition without records is read from its beginning.
    """
    places: GroupOffsets = {
        group: {topic: dict.fromkeys(offsets, 0) for topic, offsets in of_group.items() if topic in topics}
        for group, of_group in backup.groups.items()
    }
    full = [topic for topic in topics if topic in backup.partitions]
    if full:
        plan = plan_restore(Archive.open(root), full)
        bases = {part.target: 0 for part in plan.partitions}
        for group, of_group in moved_groups(plan, bases, backup.groups).items():
            for topic, offsets in of_group.items():
                places[group][topic] |= offsets
    return places


def _restore_groups(client: FlyMQClient, places: GroupOffsets) -> list[str]:
    notes = []
    for group, topics in places.items():
        try:
            for topic, offsets in topics.items():
                client.admin.reset_offsets(group, topic, offsets)
        except GroupNotEmpty as error:
            notes.append(f"the offsets of {group} were not restored: {error.message}")
    return notes
