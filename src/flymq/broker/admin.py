"""Create, change and delete topics, by a txn of the metadata store. Replicas follow as a reaction to the image
(cluster/image.py, broker/replicas); a call returns after that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from flymq.broker.replicas.replicas import Replicas
from flymq.broker.topic_notes import TopicNotes
from flymq.cluster.catalog import NO_LEADER, Catalog, Overrides, PartitionState, TopicSpec
from flymq.cluster.image import Image, Topic
from flymq.cluster.placement import check_placed, place
from flymq.host.entropy import Entropy, new_id
from flymq.host.tasks import Tasks, Threads
from flymq.model.delivery import Persistence
from flymq.model.errors import (
    DiskFull,
    FlyMQError,
    InvalidPartitions,
    InvalidSetting,
    InvalidTopicName,
    ResourcesExhausted,
    StorageError,
    TopicExists,
    TopicNotFound,
)
from flymq.model.names import check_topic_name, collide, is_internal
from flymq.model.topic_config import TopicConfig
from flymq.storage.data_directory import DataDirectory
from flymq.storage.headroom import Headroom

logger = logging.getLogger(__name__)

T = TypeVar("T")

_STARTS = 1 << 16

Placed = Sequence[Sequence[int]]
"""The brokers of each partition, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Defaults and limits of new topics."""

    partitions: int = 4
    replication_factor: int = 1
    config: TopicConfig = TopicConfig()
    auto_create: bool = False
    partitions_max: int = 1000


class Admin:
    """Creates, changes and deletes topics."""

    def __init__(
        self,
        image: Image,
        replicas: Replicas,
        catalog: Catalog,
        notes: TopicNotes,
        entropy: Entropy,
        tasks: Tasks,
        headroom: Headroom,
        defaults: TopicDefaults,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._catalog = catalog
        self._notes = notes
        self._entropy = entropy
        self._tasks = tasks
        self._headroom = headroom
        self._creating: dict[str, asyncio.Future[Topic]] = {}
        self._defaults = defaults
        replicas.on_removed = self._removed
        replicas.on_moved = notes.moved

    @property
    def defaults(self) -> TopicDefaults:
        """Defaults and limits of new topics, with what was changed at run time."""
        return replace(self._defaults, config=self._image.defaults)

    # --- create

    async def create(
        self,
        name: str,
        *,
        partitions: int = 0,
        replication_factor: int = 0,
        settings: Mapping[str, Any] | None = None,
        placed: Placed | None = None,
        validate_only: bool = False,
    ) -> Topic | None:
        """Create a topic; 0 means the default. Returns None if the request is only validated.

        `placed`: the brokers of each partition; if not given, they are chosen.
        """
        check_topic_name(name)
        if is_internal(name):
            raise InvalidTopicName(f"{name!r}: names that start with '__' are reserved for internal topics")
        await self._know_brokers(len(placed[0]) if placed else replication_factor)
        spec = self._new_spec(partitions, replication_factor, settings or {}, placed)
        if name in self._image or name in self._creating:
            raise TopicExists(f"the topic {name!r} exists already")
        self._check_collision(name)
        if validate_only:
            return None
        self._headroom.check_room()
        return await self._create(name, spec, placed)

    async def get_or_create_internal(self, name: str, *, partitions: int, settings: Mapping[str, Any]) -> Topic:
        """Return an internal topic, creating it at the first start.

        In a cluster it is on this broker alone at first, which leads it when it is admitted; the controller adds
        replicas as other brokers join.
        """
        if (topic := self._image.find(name)) is not None:
            return topic
        if self._replicas.replicator is None:
            return await self._create(name, self._new_spec(partitions, 1, settings))
        broker_id = self._replicas.broker_id
        overrides, _ = self._override({}, settings)
        state = PartitionState(NO_LEADER, 0, [broker_id], [broker_id])
        with suppress(TopicExists):  # another broker was faster
            await self._catalog.create(
                name, TopicSpec(new_id(self._entropy), partitions, 1, overrides), [state] * partitions
            )
        await self._image.until(await self._catalog.revision())
        return self._image.get(name)

    async def get_or_create(self, name: str, settings: Mapping[str, Any] | None = None) -> Topic:
        """Return a topic, creating it on first use with these settings, if the broker allows it."""
        if (topic := self._image.find(name)) is not None:
            await self._replicas.settled(topic.topic_id)
            return topic
        if not self.may_create(name):
            raise TopicNotFound(f"there is no topic {name!r}")
        check_topic_name(name)
        self._headroom.check_room()
        if (underway := self._creating.get(name)) is not None:
            return await asyncio.shield(underway)
        self._check_collision(name)
        return await self._create(name, self._new_spec(0, 0, settings or {}))

    def may_create(self, name: str) -> bool:
        """Return whether a topic of this name is created on first use."""
        return self._defaults.auto_create and not is_internal(name)

    async def _create(self, name: str, spec: TopicSpec, placed: Placed | None = None) -> Topic:
        """Create a topic in a task: it completes even if the client disconnects, and others may wait for it too."""
        done = self._creating[name] = asyncio.get_running_loop().create_future()
        self._tasks.spawn(f"creation of {name}", self._run_create(name, spec, placed, done))
        return await asyncio.shield(done)

    async def _run_create(self, name: str, spec: TopicSpec, placed: Placed | None, done: asyncio.Future[Topic]) -> None:
        try:
            done.set_result(await self._create_topic(name, spec, placed))
        except FlyMQError as error:
            if isinstance(error, ResourcesExhausted):
                self._headroom.report(error)
            done.set_exception(error)
            done.exception()  # mark the exception as retrieved: nobody may be waiting
        finally:
            del self._creating[name]
            done.cancel()  # unless it is done: the broker is stopping

    async def _create_topic(self, name: str, spec: TopicSpec, placed: Placed | None) -> Topic:
        states = self._new_states(spec, placed)
        await self._image.until(await self._catalog.create(name, spec, states))
        try:
            await self._replicas.settled(spec.topic_id)
            self._replicas.check_opened(self._image.get(name))
        except StorageError:
            if self._replicas.replicator is None:  # else others may have it, and have acknowledged records
                await self._delete(name, spec)  # a topic that cannot be opened was not created
                raise
        await self._note(name)
        topic = self._image.get(name)
        level = logging.DEBUG if topic.is_internal else logging.INFO
        retention = topic.config.describe_retention()
        logger.log(level, "created the topic %s with %d partitions, %s", name, spec.partitions, retention)
        return topic

    def _check_collision(self, name: str) -> None:
        """Refuse `a.x` beside `a_x`, as Kafka does: its metrics could not tell them apart."""
        if "." not in name and "_" not in name:
            return
        for other in (*(topic.name for topic in self._image), *self._creating):
            if collide(name, other):
                raise InvalidTopicName(
                    f"the topic name {name!r} collides with {other!r}",
                    hint="Use names that differ in more than . and _.",
                )

    def _new_spec(
        self, partitions: int, replication_factor: int, settings: Mapping[str, Any], placed: Placed | None = None
    ) -> TopicSpec:
        if placed is not None:
            partitions, replication_factor = len(placed), len(placed[0])
        partitions = partitions or self._defaults.partitions
        replication_factor = replication_factor or min(self._defaults.replication_factor, max(1, len(self._racks())))
        self._check_partitions(partitions)
        overrides, _ = self._override({}, settings)
        spec = TopicSpec(new_id(self._entropy), partitions, replication_factor, overrides)
        self._new_states(spec, placed)  # refuses a replication factor that is too large
        return spec

    def _new_states(self, spec: TopicSpec, placed: Placed | None = None, *, first: int = 0) -> list[PartitionState]:
        """Place the replicas of new partitions, from number `first` on."""
        racks = self._racks()
        if placed is None:
            start = spec.topic_id.int % _STARTS
            placed = place(racks, spec.partitions - first, spec.replication_factor, first=first, start=start)
        else:
            check_placed(placed, racks, spec.replication_factor)
        return [PartitionState(replicas[0], 0, list(replicas), list(replicas)) for replicas in placed]

    async def _know_brokers(self, replication_factor: int) -> None:
        """Before so many replicas are refused, know what the metadata store knows: a broker may just have joined."""
        if self._replicas.replicator is not None and replication_factor > len(self._racks()):
            await self._image.until(await self._catalog.revision())

    def _racks(self) -> dict[int, str]:
        """Return the brokers that new partitions can be placed on, with their racks."""
        if self._replicas.replicator is None:
            return {self._replicas.broker_id: ""}
        members = self._image.members
        usable = (each for each in members if each.is_live and not each.registration.is_draining)
        return {each.broker_id: each.registration.rack for each in usable}

    # --- change

    async def alter(self, name: str, settings: Mapping[str, Any], *, validate_only: bool = False) -> None:
        """Change settings of a topic; None resets a setting to its default."""
        topic = self._image.get(name)
        overrides, config = self._override(topic.spec.settings, settings)
        if (config.persistence is Persistence.MEMORY) != (topic.config.persistence is Persistence.MEMORY):
            raise InvalidSetting("persistence cannot change to or from 'memory' once a topic exists")
        if validate_only:
            return
        spec = msgspec.structs.replace(topic.spec, settings=overrides)
        await self._image.until(await self._with_reserve(lambda: self._catalog.replace(name, topic.spec, spec)))
        await self._note(name)
        changes = ", ".join(f"{key}={'default' if value is None else value}" for key, value in settings.items())
        logger.info("changed the topic %s: %s", name, changes)

    async def add_partitions(
        self, name: str, partitions: int, *, placed: Placed | None = None, validate_only: bool = False
    ) -> None:
        """Increase the number of partitions to `partitions`. `placed`: the brokers of each new one."""
        old = self._image.get(name).spec
        if partitions <= old.partitions:
            raise InvalidPartitions(f"the topic {name!r} has {old.partitions} partitions; it can only get more")
        self._check_partitions(partitions)
        replication_factor = self._image.get(name).replication_factor  # it may have been changed since
        spec = msgspec.structs.replace(old, partitions=partitions, replication_factor=replication_factor)
        states = self._new_states(spec, placed, first=old.partitions)
        if validate_only:
            return
        self._headroom.check_room()
        await self._image.until(await self._catalog.add_partitions(name, old, spec, states))
        try:
            await self._replicas.settled(spec.topic_id)
            self._replicas.check_opened(self._image.get(name), first=old.partitions)
        except StorageError:
            if self._replicas.replicator is None:  # else others may have them
                # Partitions that cannot be opened were not added.
                await self._image.until(await self._catalog.replace(name, spec, old))
                raise
        await self._note(name)
        logger.info("increased the partitions of the topic %s from %d to %d", name, old.partitions, partitions)

    async def _note(self, name: str) -> None:
        """Write down what the topic is now. On a full disk later: what the user asked for is done."""

        async def write() -> None:
            if (topic := self._image.find(name)) is not None:
                await self._notes.write(topic)

        await self._headroom.when_room(write)

    async def delete(self, name: str) -> None:
        """Delete a topic and its records."""
        await self._delete(name, self._image.get(name).spec)
        logger.info("deleted the topic %s", name)

    async def _delete(self, name: str, spec: TopicSpec) -> None:
        brokers = {replica for state in self._image.get(name).partitions for replica in state.replicas}
        await self._image.until(await self._with_reserve(lambda: self._catalog.delete(name, spec, brokers)))
        await self._replicas.settled(spec.topic_id)

    async def _removed(self, topic_id: UUID) -> None:
        """The files of a topic that some broker has deleted are gone from this one."""
        try:
            await self._with_reserve(lambda: self._catalog.forget_gone(topic_id, self._replicas.broker_id))
        except FlyMQError as error:  # the next start tries again
            logger.warning("the removal of a deleted topic could not be noted: %s", error)

    async def _with_reserve(self, change: Callable[[], Awaitable[T]]) -> T:
        """Make a change that leads to more room on the disk; if the disk is full, with the space kept for that."""
        try:
            return await change()
        except DiskFull as error:
            self._headroom.report(error)
            return await change()

    def _override(self, old: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[Overrides, TopicConfig]:
        """Return the overrides of the topic, and all its settings."""
        merged = {name: value for name, value in {**old, **changes}.items() if value is not None}
        self._image.defaults.with_changes(changes)  # so that an unknown name with the value None is an error too
        config = self._image.defaults.for_topic(merged)
        if config.persistence is Persistence.MEMORY and config.cleanup_policy.compacts:
            raise InvalidSetting("cleanup.policy 'compact' requires a topic on disk; persistence is 'memory'")
        if not config.compression_gzip_level:
            raise InvalidSetting("compression.gzip.level takes an integer from 1 to 9 or -1, not 0")
        if config.max_compaction_lag_ms < config.min_compaction_lag_ms:
            raise InvalidSetting(
                f"max.compaction.lag.ms is {config.max_compaction_lag_ms}, less than min.compaction.lag.ms, which is "
                f"{config.min_compaction_lag_ms}"
            )
        return config.to_overrides(merged), config

    def _check_partitions(self, partitions: int) -> None:
        if not 1 <= partitions <= self._defaults.partitions_max:
            raise InvalidPartitions(
                f"a topic can have 1 to {self._defaults.partitions_max} partitions, not {partitions}"
            )


async def remove_deleted(catalog: Catalog, directory: DataDirectory, threads: Threads, broker_id: int) -> None:
    """Finish the deletion of topics that a crash interrupted, or that were deleted while this broker was down."""
    for topic_id, name in (await catalog.gone(broker_id)).items():
        await threads.run(directory.removal(name, topic_id))
        with suppress(DiskFull):  # the next start tries again
            await catalog.forget_gone(topic_id, broker_id)
