"""With the error that this broker does not lead a partition, clients are told who does, and where (KIP-951): they need
not ask for the metadata first."""

from __future__ import annotations

from typing import NamedTuple

from flymq.broker.service.topics import Topic
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode

NOT_LED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors after which a client looks for the leader."""


class Endpoint(NamedTuple):
    """Where a leader is; in the order of Kafka's NodeEndpoint."""

    node_id: int
    host: str
    port: int
    rack: str | None


class CurrentLeaders:
    """The leaders that are named in one response."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._cluster = connection.service.cluster
        self._address = connection.local_address
        self._endpoints: dict[int, Endpoint] = {}

    def find(self, topic: Topic | None, number: int) -> tuple[int, int] | None:
        """Return the leader and the leader epoch of a partition, if there is one that a client can connect to."""
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        state = topic.partitions[number]
        if state.leader not in self._endpoints:
            found = self._cluster.find(state.leader, self._address)
            if found is None or not found.is_live:
                return None
            self._endpoints[state.leader] = Endpoint(found.broker_id, found.host, found.port, found.rack or None)
        return state.leader, state.leader_epoch

    @property
    def endpoints(self) -> list[Endpoint]:
        return list(self._endpoints.values())
