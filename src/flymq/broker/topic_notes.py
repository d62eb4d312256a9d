"""Keep in mind what lies on the disk: which partitions have files, and in each topic's folder what the topic is.

The first tells a partition whose files are lost from one that is new, the second makes a topic known again when the
metadata is lost (server/adoption.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from uuid import UUID

from flymq.broker.replicas.replicas import Replicas
from flymq.cluster.catalog import Catalog
from flymq.cluster.image import Topic
from flymq.host.tasks import Threads
from flymq.model.delivery import Persistence
from flymq.model.errors import IndeterminateResult, MetadataUnavailable, StorageError
from flymq.storage.data_directory import DataDirectory
from flymq.storage.topic_note import TopicNote

logger = logging.getLogger(__name__)

_RETRY_S = 0.5


class TopicNotes:
    """Writes the notes of topics and marks their partitions."""

    def __init__(self, directory: DataDirectory, catalog: Catalog, replicas: Replicas, threads: Threads) -> None:
        self._directory = directory
        self._catalog = catalog
        self._replicas = replicas
        self._threads = threads

    async def write(self, topic: Topic) -> None:
        """Note a topic whose partitions are open, after it was created or changed."""
        await self.write_all([topic])

    async def write_patiently(self, topic: Topic) -> None:
        """The same; again and again while the metadata store cannot be reached."""
        while True:
            try:
                return await self.write(topic)
            except (MetadataUnavailable, IndeterminateResult) as error:
                logger.debug("the note of the topic %s waits for the metadata: %s", topic.name, error.message)
                await asyncio.sleep(_RETRY_S)

    async def write_all(self, topics: Iterable[Topic]) -> None:
        """Note topics that have partitions here, where the note says something else."""
        here = (topic for topic in topics if self._replicas.of(topic))
        on_disk = [topic for topic in here if topic.config.persistence is not Persistence.MEMORY]
        await self._threads.run(lambda: self._write_notes(on_disk))
        new: dict[UUID, Collection[int]] = {}
        for topic in on_disk:
            known = self._directory.made.get(topic.topic_id, ())
            if made := set(self._replicas.of(topic)).difference(known):
                new[topic.topic_id] = made.union(known)
        if new:
            await self._catalog.mark_made(new)
            self._directory.made.update(new)

    async def moved(self, topic_id: UUID) -> None:
        """Note that partitions of a topic are here no more: if they come back, they are new."""
        await self._catalog.mark_made({topic_id: self._directory.made.get(topic_id, ())})

    def _write_notes(self, topics: list[Topic]) -> None:
        for topic in topics:
            spec = topic.spec
            note = TopicNote(topic.name, spec.topic_id, spec.partitions, spec.replication_factor, dict(spec.settings))
            try:
                if self._directory.read_note(topic.name, topic.topic_id) != note:
                    self._directory.write_note(note)
            except StorageError as error:  # a full disk, or the topic was deleted meanwhile
                logger.warning("cannot write the note of the topic %s: %s", topic.name, error)
