"""What happens to a record in the caller's own thread: to bytes, to ciphertext, to a partition, into a batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from flymq.client.accumulator import RECORD_OVERHEAD_BYTES, Accumulator, TopicQueues
from flymq.client.deliveries import Batch
from flymq.client.encryption import Cipher
from flymq.client.partitioner import check_partition
from flymq.client.serializers import serialize
from flymq.client.settings import ProducerConfig
from flymq.record.partitioning import partition_for_key
from flymq.record.record import Header

Headers = Iterable[tuple[str, bytes | str | None]]


class Prepared:
    """Records of one `produce_batch` call for one partition, cut into batches that the topic takes."""

    __slots__ = ("partition", "places", "records", "size_bytes")

    def __init__(self, partition: int | None, records: list[Any], places: Sequence[int], size_bytes: int) -> None:
        self.partition = partition
        self.records = records
        self.places = places  # where each record was in the call
        self.size_bytes = size_bytes


class Intake:
    """The way of a record into the accumulator."""

    def __init__(self, accumulator: Accumulator, config: ProducerConfig, cipher: Cipher | None) -> None:
        self._accumulator = accumulator
        self._key_serializer = config.key_serializer
        self._value_serializer = config.value_serializer
        self._partitioner = config.partitioner
        self._cipher = cipher
        self._is_plain = not (config.key_serializer or config.value_serializer or config.partitioner or cipher)

    def put(
        self,
        topic: TopicQueues,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> tuple[Batch, int]:
        """Add one record; return its batch and its place there. Raises `BufferFull`."""
        key_bytes, value_bytes, ready_headers = self._to_bytes(key, value, headers)
        if partition is not None:
            check_partition(topic.name, partition, topic.partition_count)
        else:
            partition = self._choose(topic, key_bytes, value_bytes)
        record: tuple[Any, ...] = (key_bytes, value_bytes)
        size = RECORD_OVERHEAD_BYTES
        if value_bytes is not None:
            size += len(value_bytes)
        if key_bytes is not None:
            size += len(key_bytes)
        if timestamp_ms is not None:
            record = (key_bytes, value_bytes, ready_headers, timestamp_ms)
        elif ready_headers:
            record = (key_bytes, value_bytes, ready_headers)
        for name, content in ready_headers:
            size += len(name) + len(content or b"") + 4
        return self._accumulator.add(topic, partition, record, size)

    def prepare_batch(self, topic: TopicQueues, messages: Iterable[Any], partition: int | None) -> list[Prepared]:
        """Turn (key, value) pairs, or bare values, into batches. Works by whole lists: this is the fast way in."""
        pairs = [message if type(message) is tuple else (None, message) for message in messages]
        if self._is_plain:
            records: list[Any] = [
                (
                    key if type(key) is bytes or key is None else serialize(None, key),
                    value if type(value) is bytes else serialize(None, value),
                )
                for key, value in pairs
            ]
        else:
            records = [self._record(key, value) for key, value in pairs]
        if partition is not None:
            check_partition(topic.name, partition, topic.partition_count)
            return _cut(topic, partition, records, range(len(records)))
        return self._share_out(topic, records)

    def _record(self, key: Any, value: Any) -> tuple[Any, ...]:
        key_bytes, value_bytes, headers = self._to_bytes(key, value, None)
        return (key_bytes, value_bytes, headers) if headers else (key_bytes, value_bytes)

    def _to_bytes(
        self, key: Any, value: Any, headers: Headers | None
    ) -> tuple[bytes | None, bytes | None, Sequence[Header]]:
        if self._key_serializer is not None or type(key) is not bytes:
            key = serialize(self._key_serializer, key)
        if self._value_serializer is not None or type(value) is not bytes:
            value = serialize(self._value_serializer, value)
        ready: Sequence[Header] = ()
        if headers:
            ready = tuple((name, serialize(None, content)) for name, content in headers)
        if self._cipher is not None:
            value, ready = self._cipher.encrypt(value, ready)
        return key, value, ready

    def _choose(self, topic: TopicQueues, key: bytes | None, value: bytes | None) -> int | None:
        if self._partitioner is None:
            return None if key is None else partition_for_key(key, topic.partition_count)
        partition = self._partitioner(topic.name, key, value, topic.partition_count)
        return None if partition is None else check_partition(topic.name, partition, topic.partition_count)

    def _share_out(self, topic: TopicQueues, records: list[Any]) -> list[Prepared]:
        count = topic.partition_count
        if self._partitioner is not None:
            chosen = [self._choose(topic, record[0], record[1]) for record in records]
        else:
            chosen = [None if record[0] is None else partition_for_key(record[0], count) for record in records]
        shares: dict[int | None, tuple[list[Any], list[int]]] = {}
        for place, partition in enumerate(chosen):
            share = shares.get(partition)
            if share is None:
                share = shares[partition] = ([], [])
            share[0].append(records[place])
            share[1].append(place)
        return [
            piece
            for partition, (share_records, places) in shares.items()
            for piece in _cut(topic, partition, share_records, places)
        ]


def _cut(topic: TopicQueues, partition: int | None, records: list[Any], places: Sequence[int]) -> list[Prepared]:
    """Cut the records of one partition where a batch is full."""
    ends = list(accumulate(map(_size, records)))
    pieces: list[Prepared] = []
    start = 0
    while start < len(records):
        before = ends[start - 1] if start else 0
        end = max(bisect_right(ends, before + topic.batch_bytes_max, lo=start), start + 1)
        pieces.append(Prepared(partition, records[start:end], places[start:end], ends[end - 1] - before))
        start = end
    return pieces


def _size(record: tuple[Any, ...]) -> int:
    return len(record[0] or b"") + len(record[1] or b"") + RECORD_OVERHEAD_BYTES
