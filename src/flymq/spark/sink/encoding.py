"""Encode rows into record batches, one or more per partition, without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from flymq.model.errors import InvalidColumns, PartitionNotFound
from flymq.model.names import TopicPartition
from flymq.record import codec
from flymq.record.arrow import record_columns
from flymq.record.batch import encode_column_batch
from flymq.record.shapes import BinaryColumn, RecordColumns
from flymq.spark.encryption import encrypted
from flymq.spark.options import WriteOptions
from flymq.wire.native.messages.transactions import InitProducerAnswer

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

_ROW_OVERHEAD_BYTES = 24
"""Upper limit of a record's overhead besides key, value and headers, for records of less than a megabyte."""
_BATCH_OVERHEAD_BYTES = 128
_SEQUENCE_SPAN = 1 << 31


class BatchEncoder:
    """Encodes rows: knows the topics' partitions and the producer's sequence numbers."""

    def __init__(self, options: WriteOptions, *, first_turn: int, is_transactional: bool) -> None:
        self._options = options
        self._is_transactional = is_transactional
        self._turn = first_turn
        self._topics: dict[str, tuple[int, int]] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._cipher = options.cipher()
        self.identity: InitProducerAnswer | None = None

    def learn(self, topic: str, partition_count: int, message_bytes_max: int) -> None:
        """Add the metadata of a topic."""
        batch_bytes_max = min(self._options.batch_bytes, message_bytes_max - _BATCH_OVERHEAD_BYTES)
        self._topics[topic] = (partition_count, batch_bytes_max)

    def unknown_topics(self, rows: pa.RecordBatch) -> list[str]:
        """Return the topics of these rows whose metadata is not known yet."""
        names = [self._options.topic] if self._options.topic is not None else rows.column("topic").unique().to_pylist()
        if None in names:
            raise InvalidColumns("a row has no topic", hint="Fill the column topic, or set the option topic.")
        return [name for name in names if name not in self._topics]

    def encode(self, rows: pa.RecordBatch, now_ms: int) -> Iterator[tuple[TopicPartition, bytearray]]:
        """Yield the batches of these rows; those of one partition in row order."""
        columns = self._columns(rows)
        sizes = _sizes(columns)
        hashes = _hashes(columns)
        given = _given_partitions(rows)
        for topic, indices in self._by_topic(rows):
            partition_count, batch_bytes_max = self._topics[topic]
            partitions = self._partitions(topic, partition_count, given[indices], hashes[indices])
            for partition, group in _by_partition(partitions, indices):
                name = TopicPartition(topic, partition)
                for piece in _pieces(group, sizes[group], batch_bytes_max):
                    yield name, self._batch(name, columns, piece, now_ms)
        self._turn += 1

    def _columns(self, rows: pa.RecordBatch) -> RecordColumns:
        names = rows.schema.names
        if self._cipher is not None:
            rows = encrypted(rows, self._cipher)
            names = rows.schema.names
        return record_columns(
            rows.column("value"),
            rows.column("key") if "key" in names else None,
            rows.column("headers") if "headers" in names else None,
            _milliseconds(rows.column("timestamp")) if self._options.include_timestamp else None,
        )

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, Numbers]]:
        if self._options.topic is not None:
            yield self._options.topic, np.arange(rows.num_rows)
            return
        encoded = rows.column("topic").dictionary_encode()
        codes = encoded.indices.to_numpy()
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, np.flatnonzero(codes == code)

    def _partitions(self, topic: str, count: int, given: Numbers, hashes: Numbers) -> Numbers:
        """Return the partition of each row: its explicit one, else by its key, else the sticky one."""
        if given.max(initial=-1) >= count:
            raise PartitionNotFound(f"topic {topic!r} has the partitions 0 to {count - 1}, not {given.max()}")
        chosen = np.where(hashes >= 0, hashes % count, self._turn % count)
        return np.where(given >= 0, given, chosen)

    def _batch(self, name: TopicPartition, columns: RecordColumns, rows: Numbers, now_ms: int) -> bytearray:
        assert self.identity is not None
        sequence = self._sequences.get(name, 0)
        self._sequences[name] = (sequence + len(rows)) % _SEQUENCE_SPAN
        return encode_column_batch(
            columns,
            np.ascontiguousarray(rows, np.int64).data,
            timestamp_ms=now_ms,
            compression=self._options.compression,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=sequence,
            transactional=self._is_transactional,
        )


def _by_partition(partitions: Numbers, indices: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield each partition with its rows, in row order."""
    if not len(partitions):
        return
    if partitions.min() == partitions.max():
        yield int(partitions[0]), indices
        return
    # numpy sorts 16-bit numbers with a radix sort, which is several times faster.
    order = np.argsort(partitions if partitions.max() >= 1 << 15 else partitions.astype(np.int16), kind="stable")
    in_order = partitions[order]
    cuts = np.flatnonzero(np.diff(in_order)) + 1
    for group in np.split(order, cuts):
        yield int(partitions[group[0]]), indices[group]


def _pieces(rows: Numbers, sizes: Numbers, bytes_max: int) -> Iterator[Numbers]:
    """Split rows into batches. A row that exceeds the batch size is sent alone; the broker may reject it."""
    ends = np.cumsum(sizes)
    start = before = 0
    while start < len(rows):
        end = max(int(np.searchsorted(ends, before + bytes_max, side="right")), start + 1)
        yield rows[start:end]
        start, before = end, int(ends[end - 1])


def _sizes(columns: RecordColumns) -> Numbers:
    """Return an upper estimate of the encoded size of each row."""
    sizes = np.diff(_ends(columns.value.ends, columns.row_count)).astype(np.int64) + _ROW_OVERHEAD_BYTES
    if columns.key is not None:
        sizes += np.diff(_ends(columns.key.ends, columns.row_count))
    if columns.header_ends is not None:
        lists = _ends(columns.header_ends, columns.row_count)
        for part in (columns.header_name, columns.header_value):
            assert isinstance(part, BinaryColumn)
            sizes += np.diff(_ends(part.ends, columns.header_count)[lists])
        sizes += 10 * np.diff(lists)
    return sizes


def _ends(buffer: object, count: int) -> Numbers:
    return np.frombuffer(buffer, np.int32, count + 1)  # type: ignore[call-overload,no-any-return]


def _hashes(columns: RecordColumns) -> Numbers:
    if columns.key is None:
        return np.full(columns.row_count, -1)
    return np.frombuffer(codec.hash_keys(columns.key, columns.row_count), np.int32).astype(np.int64)


def _given_partitions(rows: pa.RecordBatch) -> Numbers:
    """Return the explicit partition of each row; -1 if it has none."""
    if "partition" not in rows.schema.names:
        return np.full(rows.num_rows, -1)
    given: Numbers = rows.column("partition").fill_null(-1).to_numpy().astype(np.int64)
    if given.min(initial=0) < -1:
        raise PartitionNotFound(f"a row has partition {given.min()}; partitions are numbered from 0")
    return given


def _milliseconds(times: pa.Array) -> pa.Array:
    return times.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64()).fill_null(-1)
