"""All systems that can be measured, FlyMQ first."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.contender import Driver
from benchmarks.peers.flymq import FlyMQ
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.rabbitmq import RabbitMQ
from benchmarks.peers.redis import Redis

DRIVERS: Sequence[Driver] = (FlyMQ(), Kafka(), Nats(), Redis(), RabbitMQ())


def versions() -> dict[str, str]:
    """Return the versions of all systems that are here."""
    return {driver.name: driver.version() for driver in DRIVERS if not driver.missing()}
