"""Make, change and delete topics: first in the metadata, which decides, then here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from flymq.broker.replicas.replicas import Topic, Topics
from flymq.cluster.catalog import Catalog, PartitionEntry, Settings, TopicEntry
from flymq.host.entropy import Entropy, new_id
from flymq.host.tasks import Threads
from flymq.model.delivery import Persistence
from flymq.model.errors import (
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidSetting,
    InvalidTopicName,
    TopicExists,
    TopicNotFound,
)
from flymq.model.names import check_topic_name, is_internal
from flymq.model.topic_config import TopicConfig
from flymq.storage.data_directory import DataDirectory, PartitionLog
from flymq.storage.log import Log

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a topic is like when its creator does not say, and how large it may be."""

    partitions: int = 4
    replication_factor: int = 1
    config: TopicConfig = TopicConfig()
    auto_create: bool = False
    partitions_max: int = 1000


class Admin:
    """Changes to the set of topics."""

    def __init__(
        self,
        broker_id: int,
        topics: Topics,
        catalog: Catalog,
        directory: DataDirectory,
        threads: Threads,
        entropy: Entropy,
        defaults: TopicDefaults,
    ) -> None:
        self._broker_id = broker_id
        self._topics = topics
        self._catalog = catalog
        self._directory = directory
        self._threads = threads
        self._entropy = entropy
        self._creating: dict[str, asyncio.Future[Topic]] = {}
        self.defaults = defaults

    # --- start

    async def open_topics(self) -> list[Log]:
        """Open every topic of the catalog; return the logs that a crash had left behind."""
        await self._remove_gone()
        entries = await self._catalog.topics()
        states = await self._catalog.partitions()
        recovered: list[Log] = []
        bumped: dict[tuple[UUID, int], PartitionEntry] = {}
        for name, entry in sorted(entries.items()):
            config = self.defaults.config.with_changes(entry.settings)
            logs = await self._threads.run(lambda n=name, e=entry, c=config: self._topics.open_logs(n, e, c))  # type: ignore[misc]
            mine = [states[entry.topic_id, number] for number in range(entry.partitions)]
            for number, log in enumerate(logs):
                if isinstance(log, Log) and not log.recovery.clean:
                    # Batches may have been lost: what is written from here on belongs to a new epoch.
                    recovered.append(log)
                    mine[number] = msgspec.structs.replace(mine[number], leader_epoch=mine[number].leader_epoch + 1)
                    bumped[entry.topic_id, number] = mine[number]
            self._topics.add_partitions(self._topics.add(name, entry, config), logs, mine)
        await self._catalog.set_leader_epochs(bumped)
        return recovered

    async def _remove_gone(self) -> None:
        """Finish the deletion of topics that a crash interrupted."""
        for topic_id, name in (await self._catalog.gone()).items():
            await self._threads.run(self._directory.removal(name, topic_id))
            await self._catalog.forget_gone(topic_id)

    # --- create

    async def create(
        self,
        name: str,
        *,
        partitions: int = 0,
        replication_factor: int = 0,
        settings: Mapping[str, Any] | None = None,
        validate_only: bool = False,
    ) -> Topic | None:
        """Create a topic; 0 leaves a number to the defaults. None when it was only to be validated."""
        check_topic_name(name)
        if is_internal(name):
            raise InvalidTopicName(f"{name!r}: names that start with '__' belong to the broker")
        entry, config = self._new_entry(partitions, replication_factor, settings or {})
        if name in self._topics or name in self._creating:
            raise TopicExists(f"the topic {name!r} exists already")
        if validate_only:
            return None
        return await self._create(name, entry, config)

    async def get_or_create_internal(self, name: str, *, partitions: int, settings: Mapping[str, Any]) -> Topic:
        """Return one of the broker's own topics, created at its first start."""
        if name in self._topics:
            return self._topics.get(name)
        entry, config = self._new_entry(partitions, 0, settings)
        return await self._create(name, entry, config)

    async def get_or_create(self, name: str) -> Topic:
        """Return a topic, created on first use where the settings allow it."""
        if name in self._topics:
            return self._topics.get(name)
        if not self.defaults.auto_create or is_internal(name):
            raise TopicNotFound(f"there is no topic {name!r}")
        check_topic_name(name)
        if (underway := self._creating.get(name)) is not None:
            return await asyncio.shield(underway)
        entry, config = self._new_entry(0, 0, {})
        return await self._create(name, entry, config)

    async def _create(self, name: str, entry: TopicEntry, config: TopicConfig) -> Topic:
        done = self._creating[name] = asyncio.get_running_loop().create_future()
        try:
            topic = await self._create_topic(name, entry, config)
            done.set_result(topic)
            return topic
        except BaseException as error:
            done.set_exception(error)
            done.exception()  # retrieved: nobody else may be waiting
            raise
        finally:
            del self._creating[name]

    async def _create_topic(self, name: str, entry: TopicEntry, config: TopicConfig) -> Topic:
        states = [self._new_state() for _ in range(entry.partitions)]
        logs = await self._threads.run(lambda: self._topics.open_logs(name, entry, config))
        try:
            await self._catalog.create(name, entry, states)
        except TopicExists:
            await self._threads.run(self._directory.removal(name, entry.topic_id))
            raise
        topic = self._topics.add(name, entry, config)
        self._topics.add_partitions(topic, logs, states)
        level = logging.DEBUG if topic.is_internal else logging.INFO
        logger.log(level, "the topic %s was created, with %d partitions", name, entry.partitions)
        return topic

    def _new_entry(
        self, partitions: int, replication_factor: int, settings: Mapping[str, Any]
    ) -> tuple[TopicEntry, TopicConfig]:
        partitions = partitions or self.defaults.partitions
        replication_factor = replication_factor or self.defaults.replication_factor
        self._check_partitions(partitions)
        if replication_factor != 1:
            raise InvalidReplicationFactor(f"{replication_factor} replicas on 1 broker")
        overrides, config = self._override({}, settings)
        return TopicEntry(new_id(self._entropy), partitions, replication_factor, overrides), config

    def _new_state(self) -> PartitionEntry:
        return PartitionEntry(self._broker_id, 0, [self._broker_id], [self._broker_id])

    # --- change

    async def alter(self, name: str, settings: Mapping[str, Any], *, validate_only: bool = False) -> None:
        """Change settings of a topic; None takes one back to its default."""
        topic = self._topics.get(name)
        overrides, config = self._override(topic.entry.settings, settings)
        if (config.persistence is Persistence.MEMORY) != (topic.config.persistence is Persistence.MEMORY):
            raise InvalidSetting("persistence cannot change to or from 'memory' once a topic exists")
        if validate_only:
            return
        entry = msgspec.structs.replace(topic.entry, settings=overrides)
        await self._catalog.replace(name, topic.entry, entry)
        topic.entry, topic.config = entry, config
        for partition in topic.partitions:
            partition.configure(config)
        changes = ", ".join(f"{key}={'default' if value is None else value}" for key, value in settings.items())
        logger.info("the topic %s was changed: %s", name, changes)

    async def add_partitions(self, name: str, partitions: int, *, validate_only: bool = False) -> None:
        """Let a topic have `partitions` partitions in all."""
        topic = self._topics.get(name)
        old = topic.entry
        if partitions <= old.partitions:
            raise InvalidPartitions(f"the topic {name!r} has {old.partitions} partitions, and {partitions} is not more")
        self._check_partitions(partitions)
        if validate_only:
            return
        entry = msgspec.structs.replace(old, partitions=partitions)
        states = [self._new_state() for _ in range(partitions - old.partitions)]
        logs: list[PartitionLog] = await self._threads.run(
            lambda: self._topics.open_logs(name, entry, topic.config, first=old.partitions)
        )
        await self._catalog.add_partitions(name, old, entry, states)
        topic.entry = entry
        self._topics.add_partitions(topic, logs, states)
        logger.info("the topic %s has %d partitions now, not %d", name, partitions, old.partitions)

    async def delete(self, name: str) -> None:
        """Delete a topic and its records."""
        topic = self._topics.get(name)
        if topic.is_internal:
            raise InvalidTopicName(f"the topic {name!r} belongs to the broker")
        await self._catalog.delete(name, topic.entry)
        self._topics.remove(name)
        logs = [partition.log for partition in topic.partitions]
        await self._threads.run(self._directory.removal(name, topic.topic_id, logs))
        await self._catalog.forget_gone(topic.topic_id)
        logger.info("the topic %s was deleted", name)

    def _override(self, old: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[Settings, TopicConfig]:
        """Return what is set for the topic alone, and all its settings."""
        merged = {name: value for name, value in {**old, **changes}.items() if value is not None}
        self.defaults.config.with_changes(changes)  # so that an unknown name with the value None is named too
        config = self.defaults.config.with_changes(merged)
        if config.persistence is Persistence.MEMORY and config.cleanup_policy.compacts:
            raise InvalidSetting("cleanup.policy 'compact' needs a topic on disk; persistence is 'memory'")
        plain = config.to_mapping()
        return {name: plain[name] for name in merged}, config

    def _check_partitions(self, partitions: int) -> None:
        if not 1 <= partitions <= self.defaults.partitions_max:
            raise InvalidPartitions(f"a topic has 1 to {self.defaults.partitions_max} partitions, not {partitions}")
