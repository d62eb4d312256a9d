"""Clients that send single records and are told when each is acknowledged: librdkafka, and FlyMQ's SDK."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from confluent_kafka import Producer

import flymq
from benchmarks.cluster.members import Running

_VALUE = b"x" * 100
Acknowledged = Callable[[], None]


class SingleProducer(Protocol):
    """Sends with acks=all."""

    def send(self, topic: str, partition: int, acknowledged: Acknowledged) -> None:
        """Send a record without waiting."""

    def wait(self, seconds: float) -> None:
        """Let acknowledgements come in."""

    def close(self) -> None: ...


class Librdkafka:
    """The same client for both systems. It looks for new leaders often, since no answer at all tells it nothing."""

    def __init__(self, cluster: Running) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.addresses,
                "acks": "all",
                "linger.ms": 0,
                "request.timeout.ms": 2_000,
                "socket.timeout.ms": 3_000,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )

    def send(self, topic: str, partition: int, acknowledged: Acknowledged) -> None:
        def delivered(error: object, _: object) -> None:
            if error is None:
                acknowledged()

        self._producer.produce(topic, _VALUE, partition=partition, on_delivery=delivered)

    def wait(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def close(self) -> None:
        self._producer.purge()  # what is not acknowledged by now does not matter
        self._producer.flush(10)


class Sdk:
    """FlyMQ's own client, over its own protocol."""

    def __init__(self, cluster: Running) -> None:
        self._client = flymq.FlyMQClient(cluster.addresses, request_timeout_ms=2_000)
        self._producer = self._client.producer(acks="all", linger_ms=0, delivery_timeout_ms=120_000)

    def send(self, topic: str, partition: int, acknowledged: Acknowledged) -> None:
        def delivered(_: object, error: object) -> None:
            if error is None:
                acknowledged()

        self._producer.send(topic, _VALUE, partition=partition, on_delivery=delivered)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self._client.abort()  # what is not acknowledged by now does not matter
