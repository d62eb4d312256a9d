"""Turn fetched batches into the records users see: decompress, decode, decrypt, deserialize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flymq.client.cursor import FetchedRun
from flymq.client.encryption import Cipher
from flymq.client.records import ConsumerRecord, consumer_records
from flymq.client.serializers import Deserializer, deserialize
from flymq.model.errors import UnreadableRecord
from flymq.record.reading import parse_records
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

        Raises the error of the unreadable record if it is the first.
        """
        records = parse_records(run.batches, start_offset=run.start_offset, aborted=run.aborted)
        if self._is_plain:
            return consumer_records(topic, partition, records), None
        decoded: list[ConsumerRecord] = []
        for record in records:
            try:
                decoded.append(self.decode_one(topic, partition, record))
            except UnreadableRecord:
                if not decoded:
                    raise
                return decoded, run._replace(start_offset=record.offset)
        return decoded, None

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
