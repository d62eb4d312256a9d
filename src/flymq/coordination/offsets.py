"""How far one group has read: committed offsets, and those that wait for a transaction to commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from flymq.coordination.entries import Entry, OffsetKey, OffsetValue, PendingKey, PendingValue, ProducerIdentity
from flymq.model.names import TopicPartition

V = TypeVar("V")


class Offsets:
    """The offsets of one group, as its log has them."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.committed: dict[TopicPartition, OffsetValue] = {}
        self.pending: dict[int, dict[TopicPartition, PendingValue]] = {}
        """Producer id → what its open transaction is about to commit."""

    def __bool__(self) -> bool:
        return bool(self.committed or self.pending)

    def is_pending(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self.pending.values())

    def waiting_for(self) -> set[ProducerIdentity]:
        """Return whose transactions are about to commit offsets."""
        return {
            ProducerIdentity(producer_id, value.epoch)
            for producer_id, offsets in self.pending.items()
            for value in offsets.values()
        }

    def apply(self, key: OffsetKey | PendingKey, value: OffsetValue | PendingValue | None) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if isinstance(key, OffsetKey):
            assert value is None or isinstance(value, OffsetValue)
            _put(self.committed, partition, value)
            return
        assert value is None or isinstance(value, PendingValue)
        of_producer = self.pending.setdefault(key.producer_id, {})
        _put(of_producer, partition, value)
        if not of_producer:
            del self.pending[key.producer_id]

    # --- decide

    def decide_commit(self, offsets: Mapping[TopicPartition, OffsetValue]) -> list[Entry]:
        return [(self._key(partition), value) for partition, value in offsets.items()]

    def decide_pend(self, producer: ProducerIdentity, offsets: Mapping[TopicPartition, OffsetValue]) -> list[Entry]:
        """Keep offsets until the producer's transaction ends."""
        return [
            (self._pending_key(producer.producer_id, partition), PendingValue(producer.epoch, value))
            for partition, value in offsets.items()
        ]

    def decide_end(self, producer: ProducerIdentity, *, committed: bool) -> list[Entry]:
        """Let the offsets of a transaction count, or drop them. Once done, doing it again changes nothing."""
        entries: list[Entry] = []
        for partition, value in self.pending.get(producer.producer_id, {}).items():
            if value.epoch == producer.epoch:
                if committed:
                    entries.append((self._key(partition), value.offset))
                entries.append((self._pending_key(producer.producer_id, partition), None))
        return entries

    def decide_forget(self, partitions: Collection[TopicPartition]) -> list[Entry]:
        """Forget what was committed for these partitions; what a transaction is about to commit stays its own."""
        return [(self._key(partition), None) for partition in partitions if partition in self.committed]

    def decide_forget_all(self) -> list[Entry]:
        entries: list[Entry] = [(self._key(partition), None) for partition in self.committed]
        for producer_id, offsets in self.pending.items():
            entries += [(self._pending_key(producer_id, partition), None) for partition in offsets]
        return entries

    def unused_since(self, before_ms: int, *, but_topics: Collection[str] = ()) -> list[TopicPartition]:
        """Return partitions whose last commit is older, except those of the topics in use."""
        return [
            partition
            for partition, value in self.committed.items()
            if value.committed_at_ms < before_ms and partition.topic not in but_topics
        ]

    def _key(self, partition: TopicPartition) -> OffsetKey:
        return OffsetKey(self._group, partition.topic, partition.partition)

    def _pending_key(self, producer_id: int, partition: TopicPartition) -> PendingKey:
        return PendingKey(self._group, producer_id, partition.topic, partition.partition)


def _put(table: dict[TopicPartition, V], partition: TopicPartition, value: V | None) -> None:
    if value is None:
        table.pop(partition, None)
    else:
        table[partition] = value
