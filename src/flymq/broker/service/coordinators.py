"""Which broker coordinates a group or a transactional id: the leader of its partition of an internal topic."""

from __future__ import annotations

from flymq.broker.coordinators.state_log import OFFSETS, TRANSACTIONS
from flymq.broker.service.caller import Caller
from flymq.broker.service.cluster import Address, BrokerInfo, Cluster
from flymq.broker.service.gate import Gate, Operation, Resource
from flymq.cluster.image import Image
from flymq.coordination.attempts import home_of
from flymq.model.coordinators import CoordinatorKind
from flymq.model.errors import CoordinatorUnavailable
from flymq.model.names import TopicPartition
from flymq.record.partitioning import partition_for_key

_RESOURCES = {
    CoordinatorKind.GROUP: Resource.GROUP,
    CoordinatorKind.TRANSACTION: Resource.TRANSACTIONAL_ID,
}


class Coordinators:
    """Finds coordinators. Every broker knows those of the whole cluster, from its image."""

    def __init__(self, image: Image, cluster: Cluster, gate: Gate) -> None:
        self._image = image
        self._cluster = cluster
        self._gate = gate

    def find(self, caller: Caller, kind: CoordinatorKind, key: str, dialled: Address) -> BrokerInfo:
        """Return the coordinator of a group or a transactional id, for a client that has connected to `dialled`."""
        self._gate.check(caller, Operation.DESCRIBE, _RESOURCES[kind], key)
        name = self._home(kind, key)
        leader = self._image.state(name).leader
        found = next((broker for broker in self._cluster.brokers(dialled) if broker.broker_id == leader), None)
        if found is None:
            raise CoordinatorUnavailable(
                f"{name}, to which the {kind.value} {key!r} belongs, has no leader",
                hint="Retry after a short wait: a leader is elected when one of its replicas is available.",
            )
        return found

    def _home(self, kind: CoordinatorKind, key: str) -> TopicPartition:
        """Return the partition to which a group or a transactional id belongs."""
        topic, home = (OFFSETS, key) if kind is CoordinatorKind.GROUP else (TRANSACTIONS, home_of(key))
        known = self._image.find(topic)
        if known is None:
            raise CoordinatorUnavailable(
                f"the topic {topic} does not exist yet", hint="Retry after a short wait: the first broker creates it."
            )
        return TopicPartition(topic, partition_for_key(home.encode(), len(known.partitions)))
