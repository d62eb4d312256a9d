"""Members of groups, and something for them to read."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.kafka.peers import WAIT_S


def fill(address: str, topic: str, count: int = 40, partitions: int = 4) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(WAIT_S) == 0


def librdkafka_member(
    address: str, group: str, *, protocol: str = "classic", **settings: object
) -> confluent_kafka.Consumer:
    """A member that does not commit by itself; the timeouts of `consumer` members are the broker's."""
    timeouts = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100} if protocol == "classic" else {}
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **timeouts,
            **settings,
        }
    )


def poll_values(consumer: confluent_kafka.Consumer, count: int) -> list[int]:
    values: list[int] = []
    while len(values) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(values)} of {count} came"
        assert message.error() is None, message.error()
        values.append(int(message.value()))
    return values


def poll_until(condition: Callable[[], bool], *consumers: confluent_kafka.Consumer) -> None:
    """Let consumers take part in their group until something is so."""
    for _ in range(int(WAIT_S / 0.05)):
        if condition():
            return
        for consumer in consumers:
            consumer.poll(0.05)
    raise AssertionError("it did not come to that")
