"""What a producer does with a record in the caller's thread: serialize, encrypt, choose a partition, add to a batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from operator import add
from typing import Any, NamedTuple

from flymq.client.accumulator import RECORD_OVERHEAD_BYTES, Accumulator, TopicQueues
from flymq.client.deliveries import Batch, Delivery
from flymq.client.encryption import Cipher
from flymq.client.partitioner import check_partition, partitions_for_keys
from flymq.client.serializers import serialize
from flymq.client.settings import ProducerConfig
from flymq.model.errors import SerializationFailed
from flymq.record.partitioning import partition_for_key
from flymq.record.record import Header

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]

HEADER_OVERHEAD_BYTES = 4
"""Approximate size of a header besides its name and value."""


class PlannedBatch(NamedTuple):
    """A batch of a `produce_batch` call that is not queued yet: the arguments of `Accumulator.add_batch`."""

    partition: int | None
    records: list[Any]
    size_bytes: int


class SplitRecords(NamedTuple):
    """The records of a `produce_batch` call, split by partition: the partition of each record, and the batches."""

    chosen: list[int | None]
    planned: list[PlannedBatch]
    settled: Callable[[Sequence[Batch]], None] = lambda batches: None
    """Called once all of them have an outcome."""


class RecordAppender:
    """Prepares records and adds them to the accumulator."""

    def __init__(self, accumulator: Accumulator, config: ProducerConfig, cipher: Cipher | None) -> None:
        self._add = accumulator.add
        self._key_serializer = config.key_serializer
        self._value_serializer = config.value_serializer
        self._partitioner = config.partitioner
        self._cipher = cipher
        self._is_plain = not (config.key_serializer or config.value_serializer or config.partitioner or cipher)

    def append(
        self,
        topic: TopicQueues,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Add one record. Raises `BufferFull`."""
        has_more = partition is not None or headers is not None or timestamp_ms is not None
        if self._is_plain and type(value) is bytes and not has_more:
            # The fast path of most records: bytes that need no serializer, cipher, headers or partition.
            if key is None:
                return self._add(topic, None, (None, value), len(value) + RECORD_OVERHEAD_BYTES)
            if type(key) is str:
                key = key.encode()
            if type(key) is bytes:
                size = len(key) + len(value) + RECORD_OVERHEAD_BYTES
                return self._add(topic, partition_for_key(key, topic.partition_count), (key, value), size)
        return self._append(topic, value, key, partition, headers, timestamp_ms)

    def _append(
        self,
        topic: TopicQueues,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        key_bytes, value_bytes, ready_headers = self._to_bytes(key, value, headers)
        if partition is not None:
            check_partition(topic.name, partition, topic.partition_count)
        else:
            partition = self._choose(topic, key_bytes, value_bytes)
        size = len(key_bytes or b"") + len(value_bytes or b"") + RECORD_OVERHEAD_BYTES
        size += _headers_size(ready_headers)
        record: tuple[Any, ...] = (key_bytes, value_bytes, ready_headers)
        if timestamp_ms is not None:
            record = (*record, _time(timestamp_ms))
        return self._add(topic, partition, record, size)

    def split(self, topic: TopicQueues, messages: Iterable[Any], partition: int | None) -> SplitRecords:
        """Turn (key, value) pairs, or plain values, into batches. Works on whole lists: the fastest way to produce."""
        return self._split(topic, self._records(messages), partition)

    def _split(self, topic: TopicQueues, records: list[Any], partition: int | None) -> SplitRecords:
        if partition is not None:
            check_partition(topic.name, partition, topic.partition_count)
            return SplitRecords([partition] * len(records), _cut(topic, partition, records))
        chosen = self._choose_all(topic, records)
        if chosen.count(None) == len(records):  # no keys at all: nothing to split
            return SplitRecords(chosen, _cut(topic, None, records))
        # One list for each partition, and the last for records without a partition.
        lists: list[list[Any]] = [[] for _ in range(topic.partition_count + 1)]
        appends = [part.append for part in lists]
        for at, record in zip(chosen, records, strict=True):
            appends[-1 if at is None else at](record)
        planned = [batch for at, part in enumerate(lists[:-1]) for batch in _cut(topic, at, part)]
        return SplitRecords(chosen, planned + _cut(topic, None, lists[-1]))

    def _records(self, messages: Iterable[Any]) -> list[Any]:
        if not self._is_plain:
            pairs = [message if type(message) is tuple else (None, message) for message in messages]
            return [self._record(key, value) for key, value in pairs]
        # A pair of bytes is used as it is.
        return [
            message
            if type(message) is tuple
            and len(message) == 2
            and type(message[1]) is bytes
            and (type(message[0]) is bytes or message[0] is None)
            else _plain_record(message)
            for message in messages
        ]

    def _record(self, key: Any, value: Any) -> tuple[Any, ...]:
        key_bytes, value_bytes, headers = self._to_bytes(key, value, None)
        return (key_bytes, value_bytes, headers) if headers else (key_bytes, value_bytes)

    def _to_bytes(
        self, key: Any, value: Any, headers: Headers | None
    ) -> tuple[bytes | None, bytes | None, Sequence[Header]]:
        key_bytes, value_bytes = serialize(self._key_serializer, key), serialize(self._value_serializer, value)
        ready: Sequence[Header] = _headers(headers) if headers else ()
        if self._cipher is not None:
            value_bytes, ready = self._cipher.encrypt(value_bytes, ready)
        return key_bytes, value_bytes, ready

    def _choose(self, topic: TopicQueues, key: bytes | None, value: bytes | None) -> int | None:
        if self._partitioner is None:
            return None if key is None else partition_for_key(key, topic.partition_count)
        partition = self._partitioner(topic.name, key, value, topic.partition_count)
        return None if partition is None else check_partition(topic.name, partition, topic.partition_count)

    def _choose_all(self, topic: TopicQueues, records: list[Any]) -> list[int | None]:
        if self._partitioner is not None:
            return [self._choose(topic, record[0], record[1]) for record in records]
        return partitions_for_keys([record[0] for record in records], topic.partition_count)


def _headers(headers: Headers) -> tuple[Header, ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = tuple((name, serialize(None, content)) for name, content in pairs)
    for name, _ in found:
        if not isinstance(name, str):
            raise SerializationFailed(f"a header name must be a str, not {name!r}")
    return found


def _time(timestamp_ms: int) -> int:
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms < 1 << 63:
        raise SerializationFailed(f"a timestamp must be an int, in milliseconds since 1970, not {timestamp_ms!r}")
    return timestamp_ms


def _plain_record(message: Any) -> tuple[Any, ...]:
    if type(message) is not tuple:
        return None, serialize(None, message)
    key, value = message
    return (
        key.encode() if type(key) is str else serialize(None, key),
        value if type(value) is bytes else serialize(None, value),
    )


def _cut(topic: TopicQueues, partition: int | None, records: list[Any]) -> list[PlannedBatch]:
    """Split the records of one partition into batches of at most the batch size."""
    ends = list(accumulate(_sizes(records)))
    planned: list[PlannedBatch] = []
    start = before = 0
    while start < len(records):
        end = max(bisect_right(ends, before + topic.batch_bytes_max, lo=start), start + 1)
        planned.append(PlannedBatch(partition, records[start:end], ends[end - 1] - before))
        start, before = end, ends[end - 1]
    return planned


def _sizes(records: list[Any]) -> Iterator[int]:
    """Return the approximate size of each record in a batch, without a Python call for each of them."""
    keys = map(len, [record[0] or b"" for record in records])
    values = map(len, [record[1] or b"" for record in records])
    sizes = map(add, map(add, keys, values), repeat(RECORD_OVERHEAD_BYTES))
    if max(map(len, records), default=0) == 2:  # none has headers
        return sizes
    return map(add, sizes, [_headers_size(record[2]) if len(record) > 2 else 0 for record in records])


def _headers_size(headers: Sequence[Header]) -> int:
    return sum(len(name) + len(content or b"") + HEADER_OVERHEAD_BYTES for name, content in headers)
