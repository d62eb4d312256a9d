"""Bring a broker back from a backup: topics with their settings and records, and groups before the same records."""

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
    """Restore these topics of a backup, or all; return what a person should know. Read and proven whole before.

    With `replace`, topics of the same names are deleted first, with all they hold.
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
    """Return the topics to restore, or raise NotInArchive for one that the backup does not hold."""
    if missing := sorted(set(topics) - backup.topics.keys()):
        held = ", ".join(sorted(backup.topics)) or "no topic"
        raise NotInArchive(f"the backup does not hold {', '.join(missing)}", hint=f"It holds {held}.")
    return sorted(set(topics) or backup.topics)


def existing_topics(client: FlyMQClient, wanted: Sequence[str], *, allowed: bool) -> list[str]:
    """Return which of the topics are there; refuse them unless that is allowed."""
    there = sorted(set(wanted) & set(client.list_topics()))
    if there and not allowed:
        raise TopicExists(
            f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} there already, and would not be the same",
            hint="Restore into an empty broker, name other topics by --topic, or delete what is there by --replace.",
        )
    return there


def group_places(root: Path, backup: Backup, topics: Sequence[str]) -> GroupOffsets:
    """Return where groups stand in the restored topics: before the record they would have read next.

    Restored offsets begin at 0 and have no gaps. A partition that holds nothing is read from its beginning.
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
            notes.append(f"{group} stays where it is: {error.message}")
    return notes
