"""The front door: every protocol produces to and fetches from topics here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID

from flymq.broker.replicas.fetching import Fetches, FetchQuery, WaitingFetch
from flymq.broker.replicas.partition import Partition, PartitionRead
from flymq.cluster.catalog import PartitionEntry, TopicEntry
from flymq.host.clock import Clock
from flymq.model.delivery import Acks
from flymq.model.errors import PartitionNotFound, TopicIdNotFound, TopicNotFound
from flymq.model.names import TopicPartition, is_internal
from flymq.model.topic_config import TopicConfig
from flymq.record.header import Buffer
from flymq.record.partitioning import partition_for_key
from flymq.storage.batch_validation import Appended
from flymq.storage.data_directory import DataDirectory, PartitionLog
from flymq.storage.flusher import Flusher


@dataclass(slots=True)
class Topic:
    """A topic and its partitions, counted from 0."""

    name: str
    entry: TopicEntry
    config: TopicConfig
    partitions: list[Partition]
    states: list[PartitionEntry]
    next_partition: int = 0
    """Whose turn it is to get a record without a key."""

    @property
    def topic_id(self) -> UUID:
        return self.entry.topic_id

    @property
    def is_internal(self) -> bool:
        return is_internal(self.name)

    def choose_partition(self, key: Buffer | None) -> int:
        """By the key's hash, as Kafka's clients do it; in turn without a key."""
        if key is not None:
            return partition_for_key(bytes(key), len(self.partitions))
        self.next_partition = (self.next_partition + 1) % len(self.partitions)
        return self.next_partition


class Topics:
    """All topics of this broker."""

    def __init__(self, directory: DataDirectory, flusher: Flusher, clock: Clock) -> None:
        self._directory = directory
        self._flusher = flusher
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self.fetches = Fetches(self.partition)
        self.watchers: list[Callable[[str], None]] = []
        """Called with the name of a topic that has come, gone or grown."""

    # --- find

    def __iter__(self) -> Iterator[Topic]:
        """Topics in the order of their names."""
        return iter([self._topics[name] for name in sorted(self._topics)])

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def get(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name!r}")
        return topic

    def get_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic that has this id, given by its 16 bytes; one of the same name made later has another."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise TopicIdNotFound(f"there is no topic of the id {topic_id.hex()}")
        return topic

    def partition(self, name: TopicPartition) -> Partition:
        partitions = self.get(name[0]).partitions
        if not 0 <= name[1] < len(partitions):
            raise PartitionNotFound(
                f"the topic {name[0]!r} has the partitions 0 to {len(partitions) - 1}, not {name[1]}"
            )
        return partitions[name[1]]

    def partitions(self) -> Iterator[Partition]:
        for topic in self:
            yield from topic.partitions

    # --- write and read

    def produce(
        self, name: TopicPartition, batches: Buffer, acks: Acks
    ) -> tuple[Appended, asyncio.Future[None] | None]:
        """Append record batches; the future, if any, is done when they are as safe as asked for."""
        return self.partition(name).append(batches, acks)

    def fetch(self, query: FetchQuery) -> list[PartitionRead] | WaitingFetch:
        """Read several partitions, now or when there is more."""
        return self.fetches.fetch(query)

    # --- open and close, as admin.py decides

    def open_logs(self, name: str, entry: TopicEntry, config: TopicConfig, first: int = 0) -> list[PartitionLog]:
        """Open the logs of a topic's partitions from `first` on. Touches nothing else, so it may run in a thread."""
        return [
            self._directory.open(TopicPartition(name, number), entry.topic_id, config)
            for number in range(first, entry.partitions)
        ]

    def add(self, name: str, entry: TopicEntry, config: TopicConfig) -> Topic:
        """Know a topic that has no open partitions yet."""
        topic = self._topics[name] = self._by_id[entry.topic_id.bytes] = Topic(name, entry, config, [], [])
        return topic

    def add_partitions(self, topic: Topic, logs: list[PartitionLog], states: list[PartitionEntry]) -> None:
        """Begin to serve further partitions of a topic."""
        for log, state in zip(logs, states, strict=True):
            name = TopicPartition(topic.name, len(topic.partitions))
            topic.states.append(state)
            topic.partitions.append(
                Partition(name, log, leader_epoch=state.leader_epoch, flusher=self._flusher, clock=self._clock)
            )
        self._tell_watchers(topic.name)

    def remove(self, name: str) -> None:
        """Stop to serve a topic that is no more; whoever waits for its records finds it gone."""
        topic = self._topics.pop(name)
        del self._by_id[topic.topic_id.bytes]
        for partition in topic.partitions:
            partition.wake()
        self._tell_watchers(name)

    def _tell_watchers(self, name: str) -> None:
        for tell in self.watchers:
            tell(name)

    def close(self) -> None:
        """Close every log in good order."""
        for partition in self.partitions():
            partition.log.close()
        self._topics.clear()
        self._by_id.clear()
