"""The committed offsets of one group, and the pending ones of open transactions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from flymq.coordination.entries import Entry, OffsetKey, OffsetValue, PendingKey, PendingValue, ProducerIdentity
from flymq.model.names import TopicPartition

V = TypeVar("V")


class Offsets:
    """The offsets of one group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.committed: dict[TopicPartition, OffsetValue] = {}
        self.pending: dict[int, dict[TopicPartition, PendingValue]] = {}
        """Producer id → the offsets of its open transaction."""

    def __bool__(self) -> bool:
        return bool(self.committed or self.pending)

    def is_pending(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self.pending.values())

    def waiting_for(self) -> set[ProducerIdentity]:
        """Return the producers of open transactions with offsets."""
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
        _check(offsets)
        return [(self._key(partition), value) for partition, value in offsets.items()]

    def decide_pend(self, producer: ProducerIdentity, offsets: Mapping[TopicPartition, OffsetValue]) -> list[Entry]:
        """Hold offsets until the producer's transaction ends."""
        _check(offsets)
        return [
            (self._pending_key(producer.producer_id, partition), PendingValue(producer.epoch, value))
            for partition, value in offsets.items()
        ]

    def decide_end(self, producer: ProducerIdentity, *, committed: bool) -> list[Entry]:
        """Commit or drop the offsets of a transaction. Idempotent."""
        entries: list[Entry] = []
        for partition, value in self.pending.get(producer.producer_id, {}).items():
            if value.epoch == producer.epoch:
                if committed:
                    entries.append((self._key(partition), value.offset))
                entries.append((self._pending_key(producer.producer_id, partition), None))
        return entries

    def decide_delete(self, partitions: Collection[TopicPartition]) -> list[Entry]:
        """Delete the committed offsets of these partitions; pending ones stay."""
        return [(self._key(partition), None) for partition in partitions if partition in self.committed]

    def decide_delete_all(self) -> list[Entry]:
        entries: list[Entry] = [(self._key(partition), None) for partition in self.committed]
        for producer_id, offsets in self.pending.items():
            entries += [(self._pending_key(producer_id, partition), None) for partition in offsets]
        return entries

    def unused_since(self, before_ms: int, *, but_topics: Collection[str] = ()) -> list[TopicPartition]:
        """Return the partitions whose last commit is older, except those of `but_topics`."""
        return [
            partition
            for partition, value in self.committed.items()
            if value.committed_at_ms < before_ms and partition.topic not in but_topics
        ]

    def _key(self, partition: TopicPartition) -> OffsetKey:
        return OffsetKey(self._group, partition.topic, partition.partition)

    def _pending_key(self, producer_id: int, partition: TopicPartition) -> PendingKey:
        return PendingKey(self._group, producer_id, partition.topic, partition.partition)


def _check(offsets: Mapping[TopicPartition, OffsetValue]) -> None:
    for partition, value in offsets.items():
        assert value.offset >= 0, f"the offset committed for {partition} is {value.offset}"


def _put(table: dict[TopicPartition, V], partition: TopicPartition, value: V | None) -> None:
    if value is None:
        table.pop(partition, None)
    else:
        table[partition] = value
