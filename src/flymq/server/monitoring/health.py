"""The health of the broker, for probes: from process start to exit."""

from __future__ import annotations

from enum import Enum

from flymq import __version__
from flymq.gateways.rest.schema.shapes import Health
from flymq.server.monitoring.metrics import Measured


class Phase(Enum):
    """The lifecycle of a broker."""

    STARTING = "starting"
    """It recovers its logs; only probes are served."""
    SERVING = "serving"
    STOPPING = "stopping"


def describe_health(phase: Phase, measured: Measured | None, *, broker_id: int, uptime_s: float) -> Health:
    """Return the health; most fields are empty while the broker starts."""
    health = Health(phase.value, __version__, round(uptime_s, 3), broker_id, "", 0, 0, [], 0, [])
    if measured is None:
        return health
    broker = measured.broker
    partitions = list(broker.replicas)
    health.cluster = broker.service.cluster.cluster_id
    health.topics = sum(not topic.is_internal for topic in broker.image)
    health.partitions = len(partitions)
    health.connections = sum(listener.connections for listener in measured.listeners)
    health.offline_partitions = [str(each.name) for each in partitions if each.log.failure is not None]
    health.problems = [str(each.log.failure) for each in partitions if each.log.failure is not None]
    health.problems += broker.set_aside.problems.values()
    if phase is Phase.SERVING:
        health.status = "degraded" if health.problems else "ok"
    return health
