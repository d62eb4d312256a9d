"""How the broker is: what its probes answer, from the start of the process to its end."""

from __future__ import annotations

from enum import Enum

from flymq import __version__
from flymq.gateways.rest.shapes import Health
from flymq.server.metrics import Measured


class Phase(Enum):
    """Where a broker is in its life."""

    STARTING = "starting"
    """It reads its disk; only probes are answered."""
    SERVING = "serving"
    STOPPING = "stopping"


def describe_health(phase: Phase, measured: Measured | None, *, broker_id: int, uptime_s: float) -> Health:
    """Say what is known; while the broker starts that is not much."""
    health = Health(phase.value, __version__, round(uptime_s, 3), broker_id, "", 0, 0, [], 0, [])
    if measured is None:
        return health
    broker = measured.broker
    partitions = list(broker.topics.partitions())
    health.cluster = broker.cluster_id
    health.topics = sum(not topic.is_internal for topic in broker.topics)
    health.partitions = len(partitions)
    health.connections = sum(listener.connections for listener in measured.listeners)
    health.offline_partitions = [str(each.name) for each in partitions if each.log.failure is not None]
    health.problems = [str(each.log.failure) for each in partitions if each.log.failure is not None]
    if phase is Phase.SERVING:
        health.status = "degraded" if health.problems else "ok"
    return health
