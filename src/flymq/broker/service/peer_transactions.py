"""Transactions between brokers: what the coordinator asks of those that lead partitions and groups, and they of it."""

from __future__ import annotations

from collections.abc import Sequence

from flymq.broker.coordinators.markers import COMMITTED_WITHIN_S, Outcomes
from flymq.broker.coordinators.transactions import Transactions as TransactionCoordinator
from flymq.broker.service.caller import Caller
from flymq.broker.service.gate import CLUSTER_NAME, Gate, Operation, Resource
from flymq.coordination.entries import ProducerIdentity as ProducerIdentity
from flymq.coordination.transactions import Ending as Ending
from flymq.model.coordinators import Joining
from flymq.model.names import TopicPartition


class PeerTransactions:
    """Operations of other brokers."""

    def __init__(self, coordinator: TransactionCoordinator, gate: Gate) -> None:
        self._coordinator = coordinator
        self._gate = gate

    async def write_markers(
        self, caller: Caller, ending: Ending, partitions: Sequence[TopicPartition], groups: Sequence[str]
    ) -> Outcomes:
        """End a transaction in partitions and groups that this broker leads; return when that is committed."""
        self._check(caller)
        return await self._coordinator.markers.end_here(ending, partitions, groups, within_s=COMMITTED_WITHIN_S)

    async def join(
        self,
        caller: Caller,
        name: str,
        producer: ProducerIdentity,
        joining: Joining,
        partitions: Sequence[TopicPartition],
        groups: Sequence[str],
    ) -> None:
        """Make partitions and groups part of a transaction coordinated here; return when that is committed."""
        self._check(caller)
        await self._coordinator.join_committed(name, producer, joining, partitions=partitions, groups=groups)

    async def abort_owned(self, caller: Caller, producer: ProducerIdentity) -> tuple[bool, set[int]]:
        """Abort the open transaction of a producer, if this broker coordinates it."""
        self._check(caller)
        return await self._coordinator.abort_owned_here(producer)

    def _check(self, caller: Caller) -> None:
        self._gate.check(caller, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
