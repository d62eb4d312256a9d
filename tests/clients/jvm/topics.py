"""Topics as the frameworks under test find and leave them: made, filled and read by librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for another process; a test that waits too long is ended by its timeout."""
    while not is_so():
        time.sleep(0.1)


def create(address: str, *topics: str, partitions: int = 2, settings: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics(
        [NewTopic(topic, partitions, 1, config=dict(settings or {})) for topic in topics]
    ).values():
        made.result()


def write(address: str, topic: str, values: Iterable[str]) -> None:
    """Each value has its number as its key."""
    producer = Producer({"bootstrap.servers": address})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=str(number))
    producer.flush()


class Reader:
    """What is committed in a topic, from its beginning; it waits for the topic if it must."""

    def __init__(self, address: str, topic: str) -> None:
        settings = {"bootstrap.servers": address, "group.id": f"reader-of-{topic}", "auto.offset.reset": "earliest"}
        waiting = {"topic.metadata.refresh.interval.ms": 500, "allow.auto.create.topics": False}
        self._consumer = Consumer({**settings, **waiting, "isolation.level": "read_committed"})
        self._consumer.subscribe([f"^{topic.replace('.', '[.]')}$"])
        self.messages: list[Message] = []

    @property
    def values(self) -> list[str]:
        return [(message.value() or b"").decode() for message in self.messages]

    def read_until(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            read = self._consumer.consume(500, timeout=0.5)
            self.messages += [message for message in read if message.error() is None]

    def read(self, count: int) -> list[str]:
        self.read_until(lambda: len(self.messages) >= count)
        return self.values

    def close(self) -> None:
        self._consumer.close()
