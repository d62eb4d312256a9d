"""Topic folders that the metadata does not know. None is ever removed here.

Deleted topics leave no such folder: the metadata remembers a deleted topic until its files are gone, and its note goes
first. So a folder with a note belongs to a topic whose creation was lost from the metadata, and is adopted. One without
a note is left alone and reported; `flymq repair catalog` adopts it with default settings.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from flymq.cluster.catalog import Catalog, PartitionState, TopicSpec
from flymq.model.errors import CatalogLost, InvalidTopicName
from flymq.model.names import check_topic_name
from flymq.storage.data_directory import DataDirectory, TopicFolder
from flymq.storage.topic_note import TopicNote

logger = logging.getLogger(__name__)

PRODUCER_IDS_SKIPPED = 1 << 40
"""More than a broker hands out in its life: the ids that were given since the metadata was lost are not given again."""


def check_is_empty(directory: DataDirectory) -> None:
    """Raise `CatalogLost` if there are topics: without metadata a broker would start as if there were none."""
    folders = [name for name in directory.folders() if _holds_a_topic(directory.examine(name))]
    if folders:
        raise CatalogLost(f"there is no metadata for the topics in the data directory: {', '.join(folders[:5])}")


async def unknown_folders(catalog: Catalog, directory: DataDirectory, broker_id: int) -> list[TopicFolder]:
    """Return the folders of topics that the metadata does not know, neither as existing nor as deleted."""
    known = {directory.folder_name(name, spec.topic_id) for name, spec in (await catalog.topics()).items()}
    known.update(directory.folder_name(name, topic_id) for topic_id, name in (await catalog.gone(broker_id)).items())
    found = [directory.examine(name) for name in directory.folders() if name not in known]
    return [folder for folder in found if _holds_a_topic(folder)]


def _holds_a_topic(folder: TopicFolder) -> bool:
    return folder.note is not None or folder.log_bytes > 0


async def adopt_at_start(catalog: Catalog, directory: DataDirectory, broker_id: int) -> None:
    """Adopt the topics that the metadata has lost, and report those that cannot be adopted."""
    unknown = await unknown_folders(catalog, directory, broker_id)
    for folder in unknown:
        if folder.note is None:
            logger.warning(
                "topics/%s is unknown to the metadata and is left alone: it has %d bytes of records and no note. "
                "To adopt the topic, stop the broker and run: flymq repair catalog",
                folder.name,
                folder.log_bytes,
            )
    await adopt(catalog, [(folder, folder.note) for folder in unknown if folder.note is not None], broker_id)


async def report_unknown(catalog: Catalog, directory: DataDirectory, broker_id: int) -> None:
    """Report folders of topics that the cluster does not know. They may belong to topics that a restored backup of the
    metadata does not have, so they are neither removed nor adopted."""
    for folder in await unknown_folders(catalog, directory, broker_id):
        logger.warning(
            "topics/%s is unknown to the cluster and is left alone: it has %d bytes of records. If the topic was "
            "deleted, remove the folder while the broker is stopped",
            folder.name,
            folder.log_bytes,
        )


async def adopt(catalog: Catalog, found: Sequence[tuple[TopicFolder, TopicNote]], broker_id: int) -> list[TopicNote]:
    """Enter topics into the metadata; return those that were, not those whose names are taken."""
    if found:  # first, so that it is not forgotten after a crash
        await catalog.take_producer_ids(PRODUCER_IDS_SKIPPED)
    adopted = []
    names = set(await catalog.topics())
    for folder, note in found:
        if note.name in names:
            logger.error("topics/%s is left alone: there is another topic of the name %s", folder.name, note.name)
            continue
        count = max([note.partitions, *(number + 1 for number in folder.partitions)])
        spec = TopicSpec(note.topic_id, count, note.replication_factor, note.settings)
        state = PartitionState(broker_id, 0, [broker_id], [broker_id])  # a log with later epochs raises it
        await catalog.mark_made({note.topic_id: range(count)})  # one without files is missing, not new
        await catalog.create(note.name, spec, [state] * count)
        names.add(note.name)
        adopted.append(note)
        logger.warning("adopted the topic %s, unknown to the metadata, from topics/%s", note.name, folder.name)
    return adopted


def guess_note(folder: TopicFolder) -> TopicNote | None:
    """Return what the name of a folder and its partitions say of a topic; None if that is not enough."""
    name, _, topic_id = folder.name.rpartition("~")
    try:
        return TopicNote(check_topic_name(name), UUID(topic_id), max(folder.partitions) + 1, 1, {})
    except (InvalidTopicName, ValueError):
        return None
