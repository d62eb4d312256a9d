"""The state log of a coordinator: a compacted internal topic, whose partitions are replayed into tables.

A group or a transactional id belongs to one partition of the topic. The broker that leads the partition is its
coordinator: it loads the table when it becomes the leader, serves it, and drops it when another broker leads.

    not led here ──lead──▶ loading (CoordinatorLoading) ──replayed──▶ serving ──another broker leads──▶ not led here
                                                                                        (NotCoordinator)

Decide, write, apply: a coordinator passes its decisions to `write`, which appends and then applies them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from flymq.broker.admin import Admin
from flymq.broker.coordinators.set_aside import SetAside
from flymq.broker.replicas.partition import Partition, Slice
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.safety import Safe
from flymq.coordination.attempts import home_of
from flymq.coordination.entries import Entry, Key, QueryKey, TransactionKey, Unreadable, encode_entries, read_entries
from flymq.host.clock import Clock
from flymq.host.tasks import Tasks, Threads
from flymq.model.delivery import Acks
from flymq.model.errors import (
    CoordinatorLoading,
    CoordinatorOffline,
    CoordinatorUnavailable,
    FlyMQError,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    PartitionOffline,
    StorageError,
)
from flymq.model.names import TopicPartition
from flymq.record.partitioning import partition_for_key
from flymq.record.reading import end_offset
from flymq.storage.log import Log

logger = logging.getLogger(__name__)

OFFSETS = "__offsets"
TRANSACTIONS = "__transactions"

SETTINGS: dict[str, Any] = {
    "cleanup.policy": "compact",
    "persistence": "disk",
    "message.timestamp.type": "create",
    "retention.ms": -1,
    "retention.bytes": -1,
    # Small segments, since the active one is never compacted and loading reads all of it.
    "segment.bytes": 4 << 20,
    "max.message.bytes": 16 << 20,
}
_READ_BYTES = 1 << 20


class Table(Protocol):
    """The state of one partition of the topic."""

    kinds: ClassVar[tuple[type[Key], ...]]
    """The kinds of its entries."""

    def check(self, entries: Iterable[Entry]) -> None:
        """Assert that a decision keeps the invariants of the state."""

    def apply(self, entries: Iterable[Entry]) -> None:
        """Apply entries of the log."""


T = TypeVar("T", bound=Table)


class StateLog(Generic[T]):
    """The tables of one internal topic that this broker serves."""

    def __init__(
        self,
        topic: str,
        partitions: int,
        new_table: Callable[[], T],
        replicas: Replicas,
        clock: Clock,
        threads: Threads,
        set_aside: SetAside,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self._new_table = new_table
        self._replicas = replicas
        self._clock = clock
        self._threads = threads
        self._set_aside = set_aside
        self._tables: dict[int, T] = {}

    @staticmethod
    async def create_topic(admin: Admin, name: str, partitions: int) -> int:
        """Create the topic at the first start; return the number of its partitions.

        It never changes, since groups and ids are mapped to partitions by a hash. Each partition is a file to fsync, so
        few are better for a single broker, and many for a large cluster.
        """
        topic = await admin.get_or_create_internal(name, partitions=partitions, settings=SETTINGS)
        return len(topic.partitions)

    # --- find

    def number_of(self, key: str) -> int:
        """Return the partition to which this group or transactional id belongs."""
        return partition_for_key(key.encode(), self.partitions)

    def table(self, key: str) -> T:
        """Return the table of `key`, or raise an error if it is loading or led by another broker."""
        number = self.number_of(key)
        table = self._tables.get(number)
        if table is None:
            raise self._why_missing(number)
        return table

    def find_table(self, number: int) -> T | None:
        return self._tables.get(number)

    def _why_missing(self, number: int) -> CoordinatorLoading | CoordinatorOffline | NotCoordinator:
        name = TopicPartition(self.topic, number)
        try:
            partition = self._replicas.get(name)
        except PartitionOffline as error:
            return CoordinatorOffline(error.message)
        except FlyMQError:
            return NotCoordinator(f"another broker leads {name}")
        if not partition.leads:
            return NotCoordinator(f"another broker leads {name}")
        if partition.log.failure is not None:
            return CoordinatorOffline(partition.log.failure.message)
        return CoordinatorLoading(f"{name} is being loaded")

    def check_loaded(self) -> None:
        """Raise an error while a partition led here is being loaded: a list of what is in the tables would lack it."""
        for number in self.led():
            if number not in self._tables and isinstance(error := self._why_missing(number), CoordinatorLoading):
                raise error

    def tables(self) -> Iterator[T]:
        """Yield the tables served here, sorted by partition."""
        for number in sorted(self._tables):
            yield self._tables[number]

    @property
    def serves_all(self) -> bool:
        """Whether this broker serves all partitions, so that a transaction unknown here is unknown everywhere."""
        return len(self._tables) == self.partitions

    def partition(self, number: int) -> Partition:
        return self._replicas.get(TopicPartition(self.topic, number))

    def led(self) -> list[int]:
        """Return the partitions that this broker leads."""
        found = []
        for number in range(self.partitions):
            partition = self._replicas.find(TopicPartition(self.topic, number))
            if partition is not None and partition.leads:
                found.append(number)
        return found

    def leader_epoch(self, number: int) -> int:
        """Return the leader epoch of a partition, which is the epoch of its coordinator."""
        return self.partition(number).leader_epoch

    # --- lead and resign

    async def load(self, number: int) -> T | None:
        """Replay a partition and serve it; None if another broker has become the leader meanwhile."""
        assert number not in self._tables, f"{self.topic}-{number} is loaded already"
        partition = self.partition(number)
        epoch, log, table = partition.leader_epoch, partition.log, self._new_table()
        offset = log.start_offset
        unreadable: list[Unreadable] = []
        belongs = keys_of(number, self.partitions)
        while (found := log.read(offset, bytes_max=_READ_BYTES)) is not None:
            offset = await self._threads.run(lambda found=found: replay(found, table, belongs, unreadable))  # type: ignore[misc]
        if unreadable:
            await self._threads.run(lambda: self._set_aside.report(partition.name, unreadable))
        # No await from here on: only the current leader serves the table.
        if not partition.leads or partition.leader_epoch != epoch:
            return None
        self._tables[number] = table
        return table

    def resign(self, number: int) -> T | None:
        """Stop serving a partition; return the table that was served."""
        return self._tables.pop(number, None)

    # --- write

    def write(self, number: int, entries: Sequence[Entry]) -> Safe:
        """Append, then apply. There is no `await` between a decision and this."""
        table, partition = self._tables[number], self.partition(number)
        table.check(entries)
        batch = encode_entries(entries, now_ms=self._clock.now_ms())
        try:
            written = partition.append(batch, Acks.ALL)
        except NotLeader as error:
            raise NotCoordinator(error.message) from error
        except (StorageError, NotEnoughReplicas) as error:  # nothing is applied: the client can retry
            message = f"{partition.name} cannot be written: {error.message}"
            raise CoordinatorUnavailable(message, hint=error.hint) from error
        table.apply(entries)
        return _of_coordinator(partition, written.safe)

    def safe(self, number: int) -> Safe:
        """Return when everything written so far to this partition is durable, and committed by its replicas.

        Also for reads: what a broker that was replaced had not committed is gone, and must not have been shown.
        """
        partition = self.partition(number)
        return _of_coordinator(partition, partition.safe())

    def replicated(self, number: int) -> Safe:
        """Return when everything written so far survives the loss of this broker; at once if it is the only replica."""
        return None if self.partition(number).replication is None else self.safe(number)


def _of_coordinator(partition: Partition, safe: Safe) -> Safe:
    """Return `safe`, which fails with an error of the coordinator if another broker leads before that."""
    if safe is None or partition.replication is None:
        return safe
    coordinated: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(future: asyncio.Future[None]) -> None:
        if coordinated.done():
            return
        if future.cancelled():
            coordinated.cancel()
        elif (error := future.exception()) is None:
            coordinated.set_result(None)
        else:
            coordinated.set_exception(NotCoordinator(error.message) if isinstance(error, NotLeader) else error)
            coordinated.exception()  # mark it as retrieved: the client may be gone

    safe.add_done_callback(done)
    return coordinated


Belongs = Callable[[Key], bool]


def keys_of(number: int, partitions: int) -> Belongs:
    """Return a predicate for the keys of one partition."""

    @cache
    def is_here(home: str) -> bool:
        return partition_for_key(home.encode(), partitions) == number

    return lambda key: is_here(_home(key))


def _home(key: Key) -> str:
    """Return the group, transactional id or query whose hash determines the partition of a key."""
    if isinstance(key, TransactionKey):
        return home_of(key.transactional_id)
    return key.query if isinstance(key, QueryKey) else key.group


def replay(found: Slice, table: Table, belongs: Belongs, unreadable: list[Unreadable]) -> int:
    """Apply the entries of a slice; return the next offset."""
    run = found.read()
    table.apply(_readable(read_entries(run, table.kinds, belongs), unreadable))
    following = end_offset(run)
    assert following is not None, "a slice holds whole batches"
    return following


def _readable(found: Iterable[Entry | Unreadable], unreadable: list[Unreadable]) -> Iterator[Entry]:
    for each in found:
        if isinstance(each, Unreadable):
            unreadable.append(each)
        else:
            yield each


class Leadership(Generic[T]):
    """Loads the partitions of a state log that this broker leads, one by one, and resigns the others."""

    def __init__(
        self,
        log: StateLog[T],
        replicas: Replicas,
        tasks: Tasks,
        loaded: Callable[[int, T], Awaitable[None]],
        resigned: Callable[[int, T], None],
    ) -> None:
        self._log = log
        self._replicas = replicas
        self._tasks = tasks
        self._loaded = loaded
        self._resigned = resigned
        self._wanted: dict[int, None] = {}
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Load the partitions led now, and follow changes of roles from now on."""
        self._replicas.role_watchers.append(self._role_changed)
        self._wanted.update(dict.fromkeys(self._log.led()))
        await self._load_wanted()

    async def settled(self) -> None:
        """Return when the partitions led now are loaded."""
        while self._running is not None and not self._running.done():
            await asyncio.wait([self._running])

    def _role_changed(self, partition: Partition) -> None:
        topic, number = partition.name
        if topic != self._log.topic:
            return
        self._wanted.pop(number, None)
        if (table := self._log.resign(number)) is not None:
            self._resigned(number, table)
        if partition.leads:
            self._wanted[number] = None
            if self._running is None or self._running.done():
                self._running = self._tasks.spawn(f"load {topic}", self._load_wanted())

    async def _load_wanted(self) -> None:
        while self._wanted:
            number = next(iter(self._wanted))
            del self._wanted[number]
            try:
                table = await self._log.load(number)
            except StorageError as error:  # the keys of this partition have no coordinator; all others are served
                partition = self._log.partition(number)
                assert isinstance(partition.log, Log), "internal topics are on disk"
                partition.log.go_offline(error)
                logger.error("%s cannot be loaded: %s. %s", partition.name, error.message, error.hint)
                continue
            except FlyMQError as error:  # another broker leads, and the log was truncated meanwhile
                logger.warning("%s-%d was not loaded: %s", self._log.topic, number, error.message)
                continue
            if table is not None:
                await self._loaded(number, table)
