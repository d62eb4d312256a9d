"""Four clients of one broker, made to do the same: write rows to a partition, read them back.

librdkafka, aiokafka and kafka-python speak Kafka's protocol, FlyMQ's own SDK speaks the native one.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import aiokafka
import confluent_kafka

with warnings.catch_warnings():  # it reads its schemas in an old-fashioned way
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

from flymq import FlyMQClient

WAIT_S = 20.0
SIZE_MAX = 8 << 20


class Row(NamedTuple):
    """What a user puts into a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 1_700_000_000_000


class Peer(Protocol):
    def write(self, address: str, topic: str, rows: Sequence[Row], compression: str = "none") -> None: ...

    def read(self, address: str, topic: str, count: int, *, committed: bool = False) -> list[Row]: ...


class Librdkafka:
    def write(self, address: str, topic: str, rows: Sequence[Row], compression: str = "none") -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "compression.type": compression,
                "message.max.bytes": SIZE_MAX,
                "enable.idempotence": True,
                "linger.ms": 20,
            }
        )
        errors: list[object] = []
        for row in rows:
            producer.produce(
                topic,
                row.value,
                row.key,
                partition=0,
                timestamp=row.timestamp_ms,
                headers=list(row.headers),
                on_delivery=lambda error, _: errors.append(error),
            )
        assert producer.flush(WAIT_S) == 0
        assert errors == [None] * len(rows)

    def read(self, address: str, topic: str, count: int, *, committed: bool = False) -> list[Row]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "fetch.message.max.bytes": SIZE_MAX,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        rows: list[Row] = []
        while len(rows) < count:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(rows)} of {count} rows came"
            assert message.error() is None, message.error()
            rows.append(Row(message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1]))
        consumer.close()
        return rows


class Aiokafka:
    def write(self, address: str, topic: str, rows: Sequence[Row], compression: str = "none") -> None:
        asyncio.run(self._write(address, topic, rows, None if compression == "none" else compression))

    async def _write(self, address: str, topic: str, rows: Sequence[Row], compression: str | None) -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=address,
            compression_type=compression,
            enable_idempotence=True,
            linger_ms=20,
            max_request_size=SIZE_MAX,
        ) as producer:
            sent = [
                await producer.send(
                    topic, row.value, row.key, partition=0, timestamp_ms=row.timestamp_ms, headers=list(row.headers)
                )
                for row in rows
            ]
            await asyncio.gather(*sent)

    def read(self, address: str, topic: str, count: int, *, committed: bool = False) -> list[Row]:
        return asyncio.run(self._read(address, topic, count, committed))

    async def _read(self, address: str, topic: str, count: int, committed: bool) -> list[Row]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
            max_partition_fetch_bytes=SIZE_MAX,
        )
        rows: list[Row] = []
        async with consumer:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            while len(rows) < count:
                message = await asyncio.wait_for(consumer.getone(), WAIT_S)
                rows.append(Row(message.key, message.value, tuple(message.headers), message.timestamp))
        return rows


class KafkaPython:
    def write(self, address: str, topic: str, rows: Sequence[Row], compression: str = "none") -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=address,
            compression_type=None if compression == "none" else compression,
            linger_ms=20,
            max_request_size=SIZE_MAX,
        )
        sent = [
            producer.send(
                topic,
                value=row.value,
                key=row.key,
                partition=0,
                timestamp_ms=row.timestamp_ms,
                headers=list(row.headers),
            )
            for row in rows
        ]
        for future in sent:
            future.get(WAIT_S)
        producer.close()

    def read(self, address: str, topic: str, count: int, *, committed: bool = False) -> list[Row]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            group_id=None,
            isolation_level="read_committed" if committed else "read_uncommitted",
            max_partition_fetch_bytes=SIZE_MAX,
            consumer_timeout_ms=int(WAIT_S * 1000),
        )
        consumer.assign([kafka.TopicPartition(topic, 0)])
        rows = []
        for message in consumer:
            rows.append(Row(message.key, message.value, tuple(message.headers), message.timestamp))
            if len(rows) == count:
                break
        consumer.close()
        return rows


class Native:
    def write(self, address: str, topic: str, rows: Sequence[Row], compression: str = "none") -> None:
        with FlyMQClient(address) as client, client.producer(compression=compression, linger_ms=20) as producer:
            sent = [
                producer.send(
                    topic, row.value, row.key, partition=0, headers=list(row.headers), timestamp=row.timestamp_ms
                )
                for row in rows
            ]
            for delivery in sent:
                delivery.result()

    def read(self, address: str, topic: str, count: int, *, committed: bool = False) -> list[Row]:
        isolation = "read_committed" if committed else "read_uncommitted"
        rows: list[Row] = []
        with FlyMQClient(address) as client:
            settings: dict[str, Any] = {"start": "earliest", "isolation": isolation, "partition_bytes_max": SIZE_MAX}
            with client.consumer(topic, partitions=[0], **settings) as consumer:
                while len(rows) < count:
                    records = consumer.poll(WAIT_S * 1000)
                    assert records, f"{len(rows)} of {count} rows came"
                    rows += [Row(each.key, each.value, tuple(each.headers), each.timestamp) for each in records]
        return rows


KAFKA_PEERS: dict[str, Peer] = {"librdkafka": Librdkafka(), "aiokafka": Aiokafka(), "kafka-python": KafkaPython()}
PEERS: dict[str, Peer] = {**KAFKA_PEERS, "native": Native()}
