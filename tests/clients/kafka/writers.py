"""Transactional producers of Kafka's Python clients, in the same words."""

from __future__ import annotations

import asyncio

import aiokafka
import confluent_kafka
from tests.clients.kafka.peers import WAIT_S, kafka


def _delivered(error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
    if error is not None:
        raise confluent_kafka.KafkaException(error)


class LibrdkafkaTransactions:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int = 30_000) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(WAIT_S)

    def write(self, topic: str, *values: bytes) -> None:
        self._producer.begin_transaction()
        self.write_more(topic, *values)

    def write_more(self, topic: str, *values: bytes) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=0, on_delivery=_delivered)
        self._producer.flush(WAIT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_S)

    def close(self) -> None:
        del self._producer


class KafkaPythonTransactions:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int = 30_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
        )
        self._producer.init_transactions()

    def write(self, topic: str, *values: bytes) -> None:
        self._producer.begin_transaction()
        self.write_more(topic, *values)

    def write_more(self, topic: str, *values: bytes) -> None:
        for future in [self._producer.send(topic, value=value, partition=0) for value in values]:
            future.get(WAIT_S)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()


class AiokafkaTransactions:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int = 30_000) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._open(address, transactional_id, timeout_ms))

    async def _open(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await self._producer.start()

    def write(self, topic: str, *values: bytes) -> None:
        self._runner.run(self._producer.begin_transaction())
        self.write_more(topic, *values)

    def write_more(self, topic: str, *values: bytes) -> None:
        self._runner.run(self._write(topic, values))

    async def _write(self, topic: str, values: tuple[bytes, ...]) -> None:
        for value in values:
            await self._producer.send_and_wait(topic, value, partition=0)

    def commit(self) -> None:
        self._runner.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._runner.run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._runner.run(self._producer.stop())
        finally:
            self._runner.close()


Writer = LibrdkafkaTransactions | KafkaPythonTransactions | AiokafkaTransactions
WRITERS: dict[str, type[Writer]] = {
    "librdkafka": LibrdkafkaTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AiokafkaTransactions,
}
