"""What coordinators are for, and how writes become part of a transaction."""

from __future__ import annotations

from enum import Enum


class CoordinatorKind(Enum):
    """What a broker coordinates."""

    GROUP = "group"
    TRANSACTION = "transaction"
    """Transactional ids, and the queries whose attempts are committed together."""


class Joining(Enum):
    """How a partition or group becomes part of a transaction."""

    ANNOUNCED = "announced"
    """By a request of its own, before anything is written to it: Kafka clients without KIP-890."""
    WRITTEN = "written"
    """By the first write to it, in a transaction that has begun: FlyMQ's own protocol."""
    BEGINS = "begins"
    """By the first write to it, which begins the transaction if none is open: Kafka clients with KIP-890."""
