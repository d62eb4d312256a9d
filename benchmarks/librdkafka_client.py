"""The work of sdk.py done with confluent-kafka, the client most Python programs use for Kafka, at the same broker."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

# The SDK's promise with its default settings: acknowledged by the leader. The SDK also has repeats recognised, which
# librdkafka does only together with acks=all.
_PRODUCER = {"acks": "1", "linger.ms": 5, "queue.buffering.max.messages": 500_000}
_CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "queued.min.messages": 1_000_000,
    "fetch.wait.max.ms": 10,
}


class LibrdkafkaClient:
    """One process's producer and consumer."""

    def __init__(self, port: int) -> None:
        self._servers = {"bootstrap.servers": f"127.0.0.1:{port}"}

    def send(self, topic: str, value: bytes, count: int, *, with_keys: bool = False) -> None:
        """Hand over records one by one, and wait until all are acknowledged."""
        producer = Producer({**self._servers, **_PRODUCER})
        for number in range(count):
            key = f"key-{number}" if with_keys else None
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:  # the queue is full; librdkafka's threads empty it
                    producer.poll(0.01)
        producer.flush()

    def send_batches(self, topic: str, messages: Sequence[dict[str, object]], times: int) -> None:
        """Hand over lists of records, and wait for each list until it is acknowledged, as `produce_batch` does."""
        producer = Producer({**self._servers, **_PRODUCER, "linger.ms": 0})
        for _ in range(times):
            producer.produce_batch(topic, list(messages))
            producer.flush()

    def read_batches(self, topic: str, partitions: int, count: int) -> None:
        consumer = self._consumer(topic, partitions)
        left = count
        while left > 0:
            left -= len([message.value() for message in consumer.consume(10_000, 1.0)])
        consumer.close()

    def read_one_by_one(self, topic: str, partitions: int, count: int) -> None:
        consumer = self._consumer(topic, partitions)
        left = count
        while left > 0:
            message = consumer.poll(1.0)
            if message is not None:
                message.value()
                left -= 1
        consumer.close()

    def round_trips(self, topic: str, value: bytes, count: int) -> list[float]:
        """Return how long each of so many records took until it was acknowledged."""
        producer = Producer({**self._servers, **_PRODUCER, "linger.ms": 0})
        producer.produce(topic, value)
        producer.flush()
        times = []
        for _ in range(count):
            started = time.perf_counter()
            producer.produce(topic, value)
            producer.flush()
            times.append(time.perf_counter() - started)
        return times

    def _consumer(self, topic: str, partitions: int) -> Consumer:
        consumer = Consumer({**self._servers, **_CONSUMER})
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        return consumer
