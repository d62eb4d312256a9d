"""The health of the broker, for probes: from process start to exit."""

from __future__ import annotations

from enum import Enum

from flymq import __version__
from flymq.gateways.rest.schema.shapes import Health
from flymq.model.errors import TooManyOpenFiles
from flymq.server.monitoring.metrics import Measured

_NAMED_MAX = 10


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
    health.problems += broker.headroom.problems
    if measured.is_out_of_files:
        health.problems.append(f"There is no free file descriptor. {TooManyOpenFiles.hint}")
    health.problems += broker.steady_clock.problems
    health.problems += broker.set_aside.problems.values()
    health.problems += _cluster_problems(measured)
    if phase is Phase.SERVING:
        health.status = "degraded" if health.problems else "ok"
    return health


def _cluster_problems(measured: Measured) -> list[str]:
    """Return what this broker knows of the cluster: nobody can use partitions without a leader."""
    if measured.member is None:
        return []
    problems = []
    if not measured.member.is_registered:
        problems.append("this broker is not registered in the cluster: it has lost the metadata store")
    is_live = measured.broker.service.cluster.is_live
    offline = [
        f"{topic.name}-{number}"
        for topic in measured.broker.image
        for number, state in enumerate(topic.partitions)
        if not is_live(state.leader)
    ]
    if offline:
        shown = ", ".join(offline[:_NAMED_MAX]) + (", …" if len(offline) > _NAMED_MAX else "")
        problems.append(f"{len(offline)} partitions of the cluster have no leader: {shown}. See flymq cluster status")
    return problems
