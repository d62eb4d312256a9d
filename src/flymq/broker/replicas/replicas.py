"""The replicas on this broker. They are opened, closed and given their roles as a reaction to the image of the cluster.

When a topic appears in the image, its replicas on this broker are opened in threads and get their roles. `settled`
waits for that.

A partition whose log cannot be opened is offline, with the reason; all others are served. It is tried again when its
topic changes, and at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar
from uuid import UUID

from flymq.broker.replicas.fetching import Fetches
from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replica_sessions import ReplicaId
from flymq.broker.replicas.replicator import Replicator
from flymq.cluster.catalog import NO_LEADER, NewEpoch
from flymq.cluster.image import Image, Topic, TopicChange
from flymq.host.clock import Clock
from flymq.host.tasks import Steps, Tasks, Threads, run_steps
from flymq.host.time_slices import TimeSlice
from flymq.model.errors import (
    FlyMQError,
    FsyncFailed,
    NotLeader,
    PartitionOffline,
    ResourcesExhausted,
    StorageError,
    TopicNotFound,
)
from flymq.model.names import TopicPartition
from flymq.storage.data_directory import DataDirectory, PartitionLog
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log

logger = logging.getLogger(__name__)

CLOSED_AT_ONCE = 16
T = TypeVar("T")

Opened = dict[int, PartitionLog | StorageError]
"""Logs by the number of the partition, or why they could not be opened."""
NewEpochs = dict[tuple[UUID, TopicPartition], NewEpoch]
"""Partitions that need a new leader epoch."""


class Replicas:
    """All replicas of this broker."""

    def __init__(
        self,
        broker_id: int,
        image: Image,
        directory: DataDirectory,
        flusher: Flusher,
        clock: Clock,
        threads: Threads,
        tasks: Tasks,
    ) -> None:
        self.broker_id = broker_id
        self._image = image
        self._directory = directory
        self._flusher = flusher
        self._clock = clock
        self._threads = threads
        self._tasks = tasks
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._by_topic: dict[UUID, dict[int, Partition]] = {}
        self._working: dict[UUID, asyncio.Task[None]] = {}
        self._offline: dict[UUID, dict[int, PartitionOffline]] = {}
        self._removal_failures: dict[UUID, FlyMQError] = {}
        self.replicator: Replicator | None = None
        """Copies what other brokers lead; None for a broker without a cluster."""
        self.on_caught_up: Callable[[UUID, Partition], None] = lambda topic_id, partition: None
        """Called when a follower that is not in sync has caught up with a partition that is led here."""
        self.is_in_touch: Callable[[], bool] = lambda: True
        """Whether this broker is certain that the cluster counts on it."""
        self.on_removed: Callable[[UUID], Awaitable[None]] = _nothing
        """Called when the files of a deleted topic are gone from this broker."""
        self.on_moved: Callable[[UUID], Awaitable[None]] = _nothing
        """Called when the files of partitions that other brokers have now are gone from this one."""
        self._may_lead = True
        self.fetches = Fetches(self.get)
        self.topic_watchers: list[Callable[[str], None]] = []
        """Called with the name of a topic that was created, deleted or extended, once its replicas here are ready."""
        self.role_watchers: list[Callable[[Partition], None]] = []
        """Called with a partition that has a new role or leader epoch."""

    # --- find

    def __iter__(self) -> Iterator[Partition]:
        """Partitions, sorted by name."""
        return iter([self._partitions[name] for name in sorted(self._partitions)])

    def __len__(self) -> int:
        return len(self._partitions)

    def find(self, name: TopicPartition) -> Partition | None:
        return self._partitions.get(name)

    def get(self, name: tuple[str, int]) -> Partition:
        """Return the partition, or raise an error if it is not here. Also accepts a plain tuple, which is cheaper."""
        partition = self._partitions.get(name)
        if partition is None:
            raise self._why_missing(name)
        return partition

    def get_by_id(self, replica: ReplicaId) -> Partition:
        """Return the partition of the topic with this id, or raise an error if it is not here."""
        topic = self._image.get_by_id(replica[0])
        partition = self._by_topic.get(topic.topic_id, {}).get(replica[1])
        if partition is None:
            raise self._why_missing((topic.name, replica[1]))
        return partition

    def _why_missing(self, name: tuple[str, int]) -> FlyMQError:
        try:
            topic = self._image.get(name[0])
            leader = topic.state(name[1]).leader
        except FlyMQError as error:
            return error
        if (offline := self.offline(topic).get(name[1])) is not None:
            return offline
        where = "is being opened" if leader == self.broker_id else f"is led by broker {leader}"
        return NotLeader(f"{TopicPartition(*name)} {where}")

    async def run_steps(self, steps: Steps[T]) -> T:
        """Run long work on a partition without blocking the event loop."""
        return await run_steps(self._threads, steps)

    def of(self, topic: Topic) -> dict[int, Partition]:
        """Return the open partitions of a topic, sorted by number."""
        return self._by_topic.get(topic.topic_id, {})

    def offline(self, topic: Topic) -> Mapping[int, PartitionOffline]:
        """Return the partitions of a topic whose logs could not be opened, with the reasons."""
        return self._offline.get(topic.topic_id, {})

    def all_offline(self) -> dict[TopicPartition, PartitionOffline]:
        """Return every partition that is offline, with the reason: not opened, or a write to it failed."""
        found = {name: each.log.failure for name, each in self._partitions.items() if each.log.failure is not None}
        for topic in self._image:
            for number, failure in self.offline(topic).items():
                found[topic.name, number] = failure
        return {TopicPartition(*name): found[name] for name in sorted(found)}

    def check_opened(self, topic: Topic, first: int = 0) -> None:
        """Raise the error if a partition of the topic, from number `first` on, could not be opened."""
        for number, failure in sorted(self.offline(topic).items()):
            if number >= first:
                raise failure.__cause__ or failure

    # --- many brokers

    def join_cluster(self, replicator: Replicator) -> None:
        """Be one of many brokers. Nothing is led before `admitted`: the metadata may be that of the last start."""
        self.replicator = replicator
        self._may_lead = False
        replicator.on_rewritten = self._rewritten
        replicator.is_catching_up = self._is_catching_up

    async def admitted(self) -> None:
        """The controller counts on this broker: whatever the metadata says that it leads, it leads."""
        self._may_lead = True
        slice_ = TimeSlice()
        for topic in list(self._image):
            await slice_.yield_if_over()
            if (current := self._image.find(topic.name)) is not None:
                self._assign_roles(current)

    def _rewritten(self, partition: Partition) -> None:
        """Take up the role that the metadata says by now."""
        if self._partitions.get(partition.name) is partition:
            self._assign_role(self._image.get(partition.name.topic), partition.name.partition, partition)

    def _is_catching_up(self, replica: ReplicaId) -> bool:
        topic = self._image.find_by_id(replica[0])
        return topic is not None and self.broker_id not in topic.state(replica[1]).isr

    def failed(self) -> list[tuple[UUID, int]]:
        """Return the partitions whose logs cannot be used: topic ids and numbers."""
        found = [(topic_id, number) for topic_id, offline in self._offline.items() for number in offline]
        for topic_id, by_number in self._by_topic.items():
            found += [(topic_id, number) for number, each in by_number.items() if each.log.failure is not None]
        return found

    def led(self) -> Iterator[tuple[UUID, Partition]]:
        """Yield the partitions with several replicas that this broker leads, with the id of their topic."""
        for topic_id, by_number in self._by_topic.items():
            for partition in by_number.values():
                if partition.replication is not None:
                    yield topic_id, partition

    # --- follow the image

    async def open(self) -> NewEpochs:
        """Open the replicas of this broker; return the partitions led here that need a new leader epoch.

        Where a log was not closed cleanly, batches may have been lost. Where it has a later epoch than the metadata,
        the metadata was restored from an older copy.
        """
        topics = list(self._image)
        opened = await asyncio.gather(*(self._open(topic) for topic in topics), return_exceptions=True)
        new_epochs: NewEpochs = {}
        failures: list[BaseException] = []
        for topic, logs in zip(topics, opened, strict=True):
            if isinstance(logs, BaseException):
                failures.append(logs)
                continue
            await self._add(topic, logs)
            for number, partition in self.of(topic).items():
                log, state = partition.log, topic.partitions[number]
                if not isinstance(log, Log) or state.leader != self.broker_id or self.replicator is not None:
                    continue  # of many brokers, the controller raises it
                if not log.recovery.clean or log.epochs.current > state.leader_epoch:
                    epoch = max(log.epochs.current, state.leader_epoch) + 1
                    new_epochs[topic.topic_id, partition.name] = NewEpoch(state, epoch)
        if failures:  # opened logs were added before, so that they are closed cleanly
            raise failures[0]
        self._image.watchers.append(self._changed)
        for topic in topics:  # those that were deleted while logs were opened, and perhaps created again
            current = self._image.find(topic.name)
            if current is None or current.topic_id != topic.topic_id:
                self._remove(topic)
        slice_ = TimeSlice()
        for topic in list(self._image):
            await slice_.yield_if_over()
            if (current := self._image.find(topic.name)) is not None:  # changes while logs were opened
                self._changed(TopicChange(current.name, None, current))
        return new_epochs

    async def settled(self, topic_id: UUID) -> None:
        """Return when the replicas of a topic match the image; raise the error if its files could not be removed.

        Partitions that could not be opened are no error here: see `offline` and `check_opened`.
        """
        if not self._working and not self._removal_failures:  # nearly always; see `is_settling`
            return
        while (task := self._working.get(topic_id)) is not None:
            await asyncio.wait([task])
        if (failure := self._removal_failures.pop(topic_id, None)) is not None:
            raise failure

    def is_settling(self, topic: Topic) -> bool:
        # Called for every produced batch: there is rarely any work, and the hash of a UUID is Python code.
        return bool(self._working) and topic.topic_id in self._working

    def _changed(self, change: TopicChange) -> None:
        before, after = change.before, change.after
        if before is not None and (after is None or after.topic_id != before.topic_id):
            self._remove(before)
        if after is None:
            return
        self._drop_revoked(after)
        self._assign_roles(after)
        if self._missing(after):
            self._work(after.topic_id, partial(self._open_missing, after.name, after.topic_id))

    def _missing(self, topic: Topic) -> list[int]:
        """Return the numbers of the partitions assigned to this broker that are not open."""
        known = self.of(topic)
        return [
            number
            for number, state in enumerate(topic.partitions)
            if self.broker_id in state.replicas and number not in known
        ]

    async def _open_missing(self, name: str, topic_id: UUID) -> None:
        tried: set[int] = set()
        while (topic := self._image.find(name)) is not None and topic.topic_id == topic_id:
            missing = [number for number in self._missing(topic) if number not in tried]
            if not missing:
                break
            tried.update(missing)
            logs = await self._open(topic)
            current = self._image.find(name)
            if current is None or current.topic_id != topic_id:  # it was deleted meanwhile
                opened = [log for log in logs.values() if not isinstance(log, StorageError)]
                await self._remove_files(name, topic_id, opened)
                return
            await self._add(current, logs)
        self._tell_topic(name)

    async def _open(self, topic: Topic) -> Opened:
        numbers = self._missing(topic)
        return await self._threads.run(lambda: self._open_all(topic, numbers)) if numbers else {}

    def _open_all(self, topic: Topic, numbers: list[int]) -> Opened:
        opened: Opened = {}
        for number in numbers:
            try:
                opened[number] = self._directory.open(TopicPartition(topic.name, number), topic.topic_id, topic.config)
            except FsyncFailed:
                raise  # the page cache cannot be trusted, whatever partition it was
            except StorageError as error:
                opened[number] = error
        return opened

    async def _add(self, topic: Topic, logs: Opened) -> None:
        """Add opened partitions; other requests are served meanwhile, since there may be thousands."""
        by_number = self._by_topic.setdefault(topic.topic_id, {})
        slice_ = TimeSlice()
        for number, log in logs.items():
            await slice_.yield_if_over()
            current = self._current(topic)  # its leaders may have changed meanwhile
            is_gone = self._by_topic.get(topic.topic_id) is not by_number  # the topic was deleted meanwhile
            if is_gone or number >= len(current.partitions):  # or the partition was removed from it
                if not isinstance(log, StorageError):
                    log.release_files()
                continue
            name, offline = TopicPartition(topic.name, number), self.offline(current)
            if isinstance(log, StorageError):
                if isinstance(log, ResourcesExhausted):
                    self._directory.gate_of(topic.name).report(log)
                failure = self._take_offline(name, log, offline.get(number))
                self._set_offline(current, {**offline, number: failure})
                continue
            if number in offline:
                self._set_offline(current, {other: why for other, why in offline.items() if other != number})
            assert name not in self._partitions, f"{name} is open already"
            partition = Partition(name, log, flusher=self._flusher, clock=self._clock)
            partition.on_caught_up = partial(self._caught_up, current.topic_id, partition)
            partition.may_lead_alone = self._is_in_touch
            self._partitions[name] = by_number[number] = partition
            self._assign_role(current, number, partition)

    def _caught_up(self, topic_id: UUID, partition: Partition) -> None:
        self.on_caught_up(topic_id, partition)

    def _is_in_touch(self) -> bool:
        return self.is_in_touch()

    def _current(self, topic: Topic) -> Topic:
        found = self._image.find(topic.name)
        return topic if found is None or found.topic_id != topic.topic_id else found

    def _take_offline(
        self, name: TopicPartition, error: StorageError, known: PartitionOffline | None
    ) -> PartitionOffline:
        """Return why a partition is offline, and log it unless it is known."""
        failure = PartitionOffline(f"{name} is offline: {error.message}", hint=error.hint)
        if known is None or known.message != failure.message:
            logger.error("%s. %s", failure.message, error.hint)
        failure.__cause__ = error
        return failure

    def _set_offline(self, topic: Topic, offline: dict[int, PartitionOffline]) -> None:
        if offline:
            self._offline[topic.topic_id] = offline
        else:
            self._offline.pop(topic.topic_id, None)

    def _assign_roles(self, topic: Topic) -> None:
        """Apply the roles and settings of the image to the open partitions of a topic."""
        for number, partition in self.of(topic).items():
            self._assign_role(topic, number, partition)

    def _assign_role(self, topic: Topic, number: int, partition: Partition) -> None:
        state = topic.partitions[number]
        if partition.log.config is not topic.config and partition.log.config != topic.config:
            partition.configure(topic.config)
        if partition.is_rewritten:
            return  # see `_rewritten`
        if partition.log.epochs.current > state.leader_epoch:
            return  # the metadata is older than the log: wait for the new epoch that `open` asks for
        leads = self._may_lead and state.leader == self.broker_id
        if (partition.leads, partition.leader_epoch) == (leads, state.leader_epoch):
            if leads:
                partition.update(state)
            return
        if leads:
            self._stop_copying(topic.topic_id, number)
            partition.lead(state.leader_epoch, state)
        else:
            partition.follow(state.leader_epoch)
            self._copy(topic.topic_id, partition, state.leader)
        for watcher in self.role_watchers:
            watcher(partition)

    def _copy(self, topic_id: UUID, partition: Partition, leader: int) -> None:
        if self.replicator is None:
            return
        if leader in (NO_LEADER, self.broker_id):
            self.replicator.stop((topic_id.bytes, partition.name.partition))
        else:
            self.replicator.follow(topic_id.bytes, partition, leader)

    def _stop_copying(self, topic_id: UUID, number: int) -> None:
        if self.replicator is not None:
            self.replicator.stop((topic_id.bytes, number))

    def _drop_revoked(self, topic: Topic) -> None:
        """Drop partitions that this broker has no replica of any more.

        Either they were moved to other brokers, or they were added and taken back, because some could not be opened.
        """
        states, here = topic.partitions, self.of(topic)
        for number in [number for number in here if number >= len(states)]:
            partition = self._drop(topic, here, number)
            partition.log.release_files()
        moved = [number for number in here if self.broker_id not in states[number].replicas]
        if moved:
            dropped = [self._drop(topic, here, number) for number in moved]
            self._work(topic.topic_id, partial(self._remove_moved, topic, dropped))
        offline = self.offline(topic)
        if offline:
            still = {number for number in offline if number < len(states) and self.broker_id in states[number].replicas}
            self._set_offline(topic, {number: offline[number] for number in still})

    def _drop(self, topic: Topic, here: dict[int, Partition], number: int) -> Partition:
        partition = here.pop(number)
        del self._partitions[partition.name]
        self._stop_copying(topic.topic_id, number)
        if partition.leads:
            partition.follow(partition.leader_epoch)
            for watcher in self.role_watchers:
                watcher(partition)
        partition.wake()
        return partition

    async def _remove_moved(self, topic: Topic, partitions: list[Partition]) -> None:
        """Remove the files of partitions that other brokers have now."""
        for partition in partitions:
            if isinstance(partition.log, Log):
                partition.log.retire()
            await partition.until_idle()
            try:
                await self._threads.run(
                    self._directory.partition_removal(partition.name, topic.topic_id, partition.log)
                )
            except FlyMQError as error:
                logger.error("cannot remove the files of %s, which other brokers have now: %s", partition.name, error)
        await self.on_moved(topic.topic_id)

    def _remove(self, topic: Topic) -> None:
        """Close a deleted topic and remove its files; waiting readers get an error."""
        partitions = self._by_topic.pop(topic.topic_id, {})
        self._offline.pop(topic.topic_id, None)
        for partition in partitions.values():
            del self._partitions[partition.name]
        for number, partition in partitions.items():
            self._stop_copying(topic.topic_id, number)
            if partition.replication is not None:
                partition.replication.end(TopicNotFound(f"the topic {topic.name!r} was deleted"))
            partition.wake()
        self._tell_topic(topic.name)
        for partition in partitions.values():
            if isinstance(partition.log, Log):
                partition.log.retire()
        self._work(topic.topic_id, partial(self._remove_closed, topic.name, topic.topic_id, list(partitions.values())))

    async def _remove_closed(self, name: str, topic_id: UUID, partitions: list[Partition]) -> None:
        for partition in partitions:
            await partition.until_idle()
        await self._remove_files(name, topic_id, [partition.log for partition in partitions])

    async def _remove_files(self, name: str, topic_id: UUID, logs: list[PartitionLog]) -> None:
        try:
            await self._threads.run(self._directory.removal(name, topic_id, logs))
            await self.on_removed(topic_id)
        except FlyMQError as error:
            logger.error("cannot remove the files of the deleted topic %s: %s", name, error)
            self._removal_failures[topic_id] = error

    def _work(self, topic_id: UUID, work: Callable[[], Awaitable[None]]) -> None:
        """Serialize operations on the files of a topic, in the order of the image's changes."""
        before = self._working.get(topic_id)

        async def run() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await work()
            finally:
                if self._working.get(topic_id) is asyncio.current_task():
                    del self._working[topic_id]

        self._working[topic_id] = self._tasks.spawn(f"replicas of {topic_id}", run())

    def _tell_topic(self, name: str) -> None:
        for watcher in self.topic_watchers:
            watcher(name)

    def reopen(self) -> None:
        """Open partitions again that could not be opened on a full disk or without a free descriptor."""
        for topic in self._image:
            if any(isinstance(failure.__cause__, ResourcesExhausted) for failure in self.offline(topic).values()):
                self._work(topic.topic_id, partial(self._open_missing, topic.name, topic.topic_id))

    def release_sealed(self) -> None:
        """Close files that are held open for readers: there is no free descriptor."""
        for partition in self._partitions.values():
            if isinstance(partition.log, Log):
                partition.log.release_sealed()

    # --- close

    async def close(self, threads: Threads, within_s: float) -> bool:
        """Close every log with a clean-shutdown marker; not after a failed fsync, so that the next start recovers.

        What takes longer than `within_s` is left to the recovery of the next start, too: a service manager would kill
        the broker, and nothing acknowledged is lost. Returns whether every log was closed cleanly.
        """
        if self._flusher.has_failed:
            return False
        # Those that are on the disk need no fsync: first, so that many are closed in a short time.
        waiting = deque(sorted(self, key=lambda partition: isinstance(partition.log, Log) and partition.log.is_dirty))
        closing = [asyncio.ensure_future(self._close_some(waiting, threads)) for _ in range(CLOSED_AT_ONCE)]
        done, late = await asyncio.wait(closing, timeout=within_s)
        if waiting or late:
            count = len(waiting) + len(late)
            logger.warning("%d partitions were not closed in %.0f s: the next start recovers them", count, within_s)
            waiting.clear()
            for partition in self:
                if isinstance(partition.log, Log):
                    partition.log.retire()  # a late thread must not write to files that the next process uses
        else:
            threads.close()
        self._partitions.clear()
        self._by_topic.clear()
        closed = [each.result() for each in done]  # all of them, for their errors
        return all(closed) and not late

    async def _close_some(self, waiting: deque[Partition], threads: Threads) -> bool:
        is_clean = True
        while waiting:
            partition = waiting.popleft()
            try:
                await threads.run(partition.log.close)
                is_clean = is_clean and partition.log.failure is None
            except FsyncFailed:
                waiting.clear()
                raise
            except StorageError as error:  # a full disk, say: this one is recovered at the next start, the others not
                level = logging.DEBUG if isinstance(error, ResourcesExhausted) else logging.ERROR  # said once already
                logger.log(level, "%s was not closed cleanly: %s", partition.name, error)
                is_clean = False
        return is_clean


async def _nothing(topic_id: UUID) -> None:
    pass
