"""Encode rows into record batches, one or more for each partition they go to."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from flymq.client.partitioner import check_partition
from flymq.model.errors import InvalidColumns
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.partitioning import partition_for_key
from flymq.spark.options import WriteOptions
from flymq.wire.native.messages.transactions import InitProducerAnswer


class BatchEncoder:
    """What turns rows into batches: topics and their partitions, and the producer's sequence numbers."""

    def __init__(self, options: WriteOptions, *, first_turn: int, is_transactional: bool) -> None:
        self._options = options
        self._is_transactional = is_transactional
        self._turn = first_turn
        self._topics: dict[str, tuple[int, int]] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._cipher = options.cipher()
        self.identity: InitProducerAnswer | None = None

    def learn(self, topic: str, partition_count: int, message_bytes_max: int) -> None:
        self._topics[topic] = (partition_count, message_bytes_max)

    def unknown_topics(self, rows: pa.RecordBatch) -> list[str]:
        """Return the topics of these rows that are not known yet."""
        if self._options.topic is not None:
            names = [self._options.topic]
        else:
            names = rows.column("topic").unique().to_pylist()
        if None in names:
            raise InvalidColumns("a row has no topic", hint="Fill the column topic, or set the option topic.")
        return [name for name in names if name not in self._topics]

    def encode(self, rows: pa.RecordBatch, now_ms: int) -> Iterator[tuple[TopicPartition, bytearray]]:
        assert self.identity is not None
        names = rows.schema.names
        count = rows.num_rows
        values = rows.column("value").cast(pa.binary()).to_pylist()
        keys = rows.column("key").cast(pa.binary()).to_pylist() if "key" in names else [None] * count
        topics = rows.column("topic").to_pylist() if self._options.topic is None else [self._options.topic] * count
        numbers = rows.column("partition").to_pylist() if "partition" in names else [None] * count
        queues: dict[TopicPartition, list[tuple[bytes | None, bytes | None]]] = {}
        for topic, number, key, value in zip(topics, numbers, keys, values, strict=True):
            partition_count, _ = self._topics[topic]
            if number is not None:
                partition = check_partition(topic, number, partition_count)
            elif key is not None:
                partition = partition_for_key(key, partition_count)
            else:
                partition = self._turn % partition_count
            queues.setdefault(TopicPartition(topic, partition), []).append((key, value))
        self._turn += 1
        for name, records in queues.items():
            sequence = self._sequences.get(name, 0)
            self._sequences[name] = sequence + len(records)
            batch = encode_batch(
                records,
                timestamp_ms=now_ms,
                compression=self._options.compression,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                base_sequence=sequence,
                transactional=self._is_transactional,
            )
            yield name, batch
