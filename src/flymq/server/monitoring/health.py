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
    health.cluster = broker.service.cluster.cluster_id
    health.topics = sum(not topic.is_internal for topic in broker.image)
    health.partitions = len(broker.replicas)
    health.connections = sum(listener.connections for listener in measured.listeners)
    offline = broker.replicas.all_offline()
    health.offline_partitions = [str(name) for name in offline]
    health.problems = [str(failure) for failure in offline.values()]
    health.problems += [f"corrupt batch: {text}" for each in broker.replicas for text in each.log.damage]
    health.problems += broker.set_aside.problems.values()
    if phase is Phase.SERVING:
        health.status = "degraded" if health.problems else "ok"
    return health
