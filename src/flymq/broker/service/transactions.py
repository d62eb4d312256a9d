"""Producer ids and transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flymq.broker.coordinators.groups import Committer
from flymq.broker.coordinators.hanging_transactions import abort_in_partition
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.transactions import Transactions as TransactionCoordinator
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.safety import Safe, wait_safe
from flymq.broker.service.caller import Caller
from flymq.broker.service.gate import CLUSTER_NAME, Gate, Operation, Resource
from flymq.broker.service.groups import Groups, NewOffset
from flymq.cluster.image import Image
from flymq.coordination.attempts import Attempt
from flymq.coordination.entries import ProducerIdentity as ProducerIdentity
from flymq.coordination.entries import TransactionState as TransactionState
from flymq.coordination.entries import TransactionValue as TransactionValue
from flymq.coordination.topic_pattern import TopicPattern
from flymq.coordination.transactions import Joining as Joining
from flymq.host.clock import Clock
from flymq.model.errors import FlyMQError
from flymq.model.names import TopicPartition


class Transactions:
    """Operations on transactions."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        producer_ids: ProducerIds,
        image: Image,
        replicas: Replicas,
        groups: Groups,
        gate: Gate,
        clock: Clock,
    ) -> None:
        self._coordinator = coordinator
        self._producer_ids = producer_ids
        self._image = image
        self._replicas = replicas
        self._groups = groups
        self._gate = gate
        self._clock = clock

    async def new_producer(self, caller: Caller) -> ProducerIdentity:
        """Return an identity for an idempotent producer without transactions."""
        self._gate.check(caller, Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME)
        return ProducerIdentity(await self._producer_ids.take(), 0)

    async def init(
        self, caller: Caller, name: str, timeout_ms: int, *, renews: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Give the transactional id to this producer: fence the previous one, and abort its open transaction."""
        self._check_write(caller, name)
        return await self._coordinator.init(name, timeout_ms, renews=renews)

    def begin(self, caller: Caller, name: str, producer: ProducerIdentity) -> Safe:
        """Begin a transaction; return when every coordinator knows of it."""
        self._check_write(caller, name)
        return self._coordinator.begin(name, producer)

    def check_partitions(
        self, caller: Caller, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, FlyMQError]:
        """Return the errors of partitions that a transaction cannot write to."""
        errors = {}
        for name in partitions:
            try:
                self._gate.check_write(caller, name.topic)
                self._image.state(name)
            except FlyMQError as error:
                errors[name] = error
        return errors

    def add(
        self,
        caller: Caller,
        name: str,
        producer: ProducerIdentity,
        *,
        partitions: Sequence[TopicPartition] = (),
        groups: Sequence[str] = (),
        keeps_epoch: bool = False,
    ) -> Safe:
        """Add partitions and groups to a transaction; begin it if none is open."""
        self._check_all(caller, name, partitions, groups)
        if keeps_epoch:
            self._coordinator.check_order(name, producer, caller.connection)
        return self._coordinator.begin_with(
            name, producer, partitions=partitions, groups=groups, keeps_epoch=keeps_epoch
        )

    def check_added(
        self, caller: Caller, name: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> None:
        """Raise an error unless the partitions are part of the producer's open transaction."""
        self._check_all(caller, name, partitions)
        self._coordinator.join(name, producer, Joining.ANNOUNCED, partitions=partitions)

    async def commit_offsets(
        self,
        caller: Caller,
        name: str,
        producer: ProducerIdentity,
        group: str,
        committer: Committer,
        offsets: Mapping[TopicPartition, NewOffset],
        joining: Joining = Joining.WRITTEN,
    ) -> dict[TopicPartition, FlyMQError]:
        """Commit offsets in the transaction, on the coordinator of the group; return the errors of some."""
        self._check_write(caller, name)
        self._gate.check(caller, Operation.READ, Resource.GROUP, group)
        values = self._groups.to_values(offsets)
        errors, safe = await self._coordinator.commit_offsets(name, producer, group, committer, values, joining)
        await wait_safe(safe)
        return errors

    async def end(
        self, caller: Caller, name: str, producer: ProducerIdentity, *, commit: bool, keeps_epoch: bool = False
    ) -> ProducerIdentity:
        """Commit or abort; return the identity of the producer from now on. Idempotent."""
        self._check_write(caller, name)
        if keeps_epoch:
            self._coordinator.check_order(name, producer, caller.connection)
        return await self._coordinator.end(name, producer, commit=commit, keeps_epoch=keeps_epoch)

    async def commit_attempts(
        self, caller: Caller, query: str, batch: int, listed: Mapping[str, ProducerIdentity]
    ) -> None:
        """Commit the listed attempts of a query's batch atomically, and abort its others; once per batch."""
        self._check_write(caller, query)
        await self._coordinator.commit_attempts(Attempt(query, batch), listed)

    # --- administration

    def all(self, caller: Caller, *, matching: str = "") -> list[tuple[str, TransactionValue]]:
        """Return the ids coordinated here that match a pattern, or all of them, and their states, sorted by id."""
        known = self._coordinator.known()
        if not matching:
            return known
        pattern = TopicPattern(matching)
        return [(name, value) for name, value in known if pattern.matches(name)]

    def get(self, caller: Caller, name: str) -> TransactionValue:
        self._gate.check(caller, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name)
        return self._coordinator.get(name)

    async def abort(self, caller: Caller, name: str) -> None:
        """Abort the open transaction of a transactional id as an administrator."""
        self._check_write(caller, name)
        await self._coordinator.abort(name)

    async def abort_in_partition(
        self, caller: Caller, name: TopicPartition, producer: ProducerIdentity, *, coordinator_epoch: int
    ) -> None:
        """Abort, as an administrator, the transaction that this producer has open in a partition."""
        self._gate.check(caller, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        self._gate.check_write(caller, name.topic)
        await abort_in_partition(
            self._coordinator,
            self._replicas.get(name),
            producer,
            coordinator_epoch=coordinator_epoch,
            clock=self._clock,
        )

    def _check_all(
        self, caller: Caller, name: str, partitions: Sequence[TopicPartition], groups: Sequence[str] = ()
    ) -> None:
        self._check_write(caller, name)
        for topic, _ in partitions:
            self._gate.check_write(caller, topic)
        for group in groups:
            self._gate.check(caller, Operation.READ, Resource.GROUP, group)

    def _check_write(self, caller: Caller, name: str) -> None:
        self._gate.check(caller, Operation.WRITE, Resource.TRANSACTIONAL_ID, name)
