"""Turn fetched batches into the records users see: decompress, decode, decrypt, deserialize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flymq.client.cursor import FetchedRun
from flymq.client.encryption import Cipher
from flymq.client.records import ConsumerRecord, consumer_records
from flymq.client.serializers import Deserializer, deserialize
from flymq.model.errors import InvalidBatch, UnreadableBatch, UnreadableRecord
from flymq.record.reading import find_broken, parse_records
from flymq.record.record import Header, Record


class Decoder:
    """Decryption and deserialization as one consumer is configured."""

    def __init__(
        self,
        cipher: Cipher | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        self._cipher = cipher
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._is_plain = cipher is None and key_deserializer is None and value_deserializer is None

    def decode(self, topic: str, partition: int, run: FetchedRun) -> tuple[list[ConsumerRecord], FetchedRun | None]:
        """Return the records of a run; if one cannot be read, those before it, and the rest of the run from there on.

        Raises the error of the unreadable record or batch if it is the first.
        """
        records, rest = _parse(topic, partition, run)
        if self._is_plain:
            return consumer_records(topic, partition, records), rest
        decoded: list[ConsumerRecord] = []
        for record in records:
            try:
                decoded.append(self.decode_one(topic, partition, record))
            except UnreadableRecord:
                if not decoded:
                    raise
                return decoded, run._replace(start_offset=record.offset)
        return decoded, rest

    def decode_one(self, topic: str, partition: int, record: Record) -> ConsumerRecord:
        """Return one record; an error names its topic, partition and offset."""
        try:
            key, value, headers = self._values(record)
        except UnreadableRecord as error:
            placed = type(error)(f"{topic}-{partition} at offset {record.offset}: {error.message}", hint=error.hint)
            placed.topic, placed.partition, placed.offset = topic, partition, record.offset
            placed.key, placed.value = record.key, record.value
            raise placed from error
        return ConsumerRecord(topic, partition, record.offset, record.timestamp_ms, key, value, headers)

    def _values(self, record: Record) -> tuple[Any, Any, Sequence[Header]]:
        key: Any = record.key
        value: Any = record.value
        headers = record.headers
        if self._cipher is not None:
            value, headers = self._cipher.decrypt(value, headers)
        if self._key_deserializer is not None:
            key = deserialize(self._key_deserializer, key)
        if self._value_deserializer is not None:
            value = deserialize(self._value_deserializer, value)
        return key, value, headers


def _parse(topic: str, partition: int, run: FetchedRun) -> tuple[list[Record], FetchedRun | None]:
    """Return the records before the first batch that cannot be decoded, and the run from there on."""
    batches, start_offset, aborted = run.batches, run.start_offset, run.aborted
    try:
        return parse_records(batches, start_offset=start_offset, aborted=aborted), None
    except InvalidBatch:
        broken = find_broken(batches, start_offset, aborted)
        if broken is None:
            raise
    records = parse_records(batches[: broken.position], start_offset=start_offset, aborted=aborted)
    if not records:
        raise unreadable_batch(topic, partition, broken.offset, broken.next_offset, broken.error) from broken.error
    return records, run._replace(start_offset=broken.offset)


def unreadable_batch(topic: str, partition: int, offset: int, next_offset: int, error: InvalidBatch) -> UnreadableBatch:
    """Return the error that names the place of a batch."""
    placed = UnreadableBatch(f"{topic}-{partition} at offset {offset}: the batch cannot be decoded: {error.message}")
    placed.topic, placed.partition, placed.offset, placed.next_offset = topic, partition, offset, next_offset
    return placed
