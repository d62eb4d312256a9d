"""Transactions that a crash has interrupted, on a broker without others: aborted at its start.

A partition or group is added in `__transactions` before the first batch or offset is written to its own log. After a
power failure the batch may be there without the entry. Then the batch was never acknowledged, and is aborted.

Not in a cluster: there the entry is committed before the batch is written, and a broker that starts again is no reason
to abort what others go on with.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.state_log import StateLog
from flymq.broker.replicas.replicas import Replicas
from flymq.coordination.attempts import home_of
from flymq.coordination.entries import Entry, ProducerIdentity, TransactionState, TransactionValue
from flymq.coordination.transaction_table import TransactionTable
from flymq.coordination.transactions import decide_abort_left_open, decide_replace, is_exhausted
from flymq.host.clock import Clock
from flymq.model.names import TopicPartition
from flymq.record.control import Marker, MarkerType

logger = logging.getLogger(__name__)

Owners = dict[ProducerIdentity, tuple[str, TransactionValue]]


class InterruptedTransactions:
    """Finds and aborts them."""

    def __init__(
        self,
        log: StateLog[TransactionTable],
        replicas: Replicas,
        groups: Groups,
        producer_ids: ProducerIds,
        clock: Clock,
        settle: Callable[[Iterable[str]], Awaitable[None]],
    ) -> None:
        """`settle` completes the ends of these transactions."""
        self._log = log
        self._replicas = replicas
        self._groups = groups
        self._producer_ids = producer_ids
        self._clock = clock
        self._settle = settle

    async def abort(self, *, was_clean: bool) -> None:
        """Abort transactions left open by a crash. Those of unknown producers only if all partitions are served."""
        partitions, groups = self._find_open_partitions(was_clean), self._find_open_groups(was_clean)
        for name, value in self._all():
            is_left_open = name in partitions or name in groups
            if is_left_open or (value.state is TransactionState.ONGOING and not was_clean):
                fresh = await self._producer_ids.take() if is_exhausted(value) else -1
                entries = decide_abort_left_open(
                    name,
                    value,
                    fresh,
                    partitions=partitions.get(name, []),
                    groups=groups.get(name, []),
                    now_ms=self._clock.now_ms(),
                )
                self._write(name, entries)
        await self._settle(name for name, value in self._all() if value.state.is_ending)
        await self._replace_overtaken()

    async def _replace_overtaken(self) -> None:
        """Replace producer ids of which partitions know later epochs: entries were lost, as from a salvaged log."""
        owners = {value.producer.producer_id: (name, value) for name, value in self._all() if value.state.is_idle}
        overtaken: dict[str, TransactionValue] = {}
        for partition in self._replicas:
            for producer in partition.log.producers.all():
                name, value = owners.get(producer.producer_id, ("", None))
                if value is not None and producer.epoch > value.producer.epoch:
                    overtaken[name] = value
        for name, value in overtaken.items():
            logger.warning("%r has lost entries in %s: its producer gets a new id", name, self._log.topic)
            fresh = await self._producer_ids.take()
            if self._log.table(home_of(name)).find(name) == value:
                self._write(name, decide_replace(name, value, fresh, now_ms=self._clock.now_ms()))

    def _find_open_partitions(self, was_clean: bool) -> dict[str, list[TopicPartition]]:
        """Return partitions with transactions left open; abort those of unknown producers."""
        owners = self._owners()
        found: dict[str, list[TopicPartition]] = {}
        for partition in self._replicas:
            if not partition.leads:
                continue
            for producer in partition.log.producers.all():
                if producer.open_since is None or partition.log.failure is not None:
                    continue
                identity = ProducerIdentity(producer.producer_id, producer.epoch)
                if identity not in owners:
                    if not self._log.serves_all:
                        continue  # it may belong to a partition that cannot be read now
                    partition.append_marker(Marker(MarkerType.ABORT, *identity, 0, self._clock.now_ms()))
                    continue
                name, value = owners[identity]
                if not value.state.is_ending and not (was_clean and partition.name in value.partitions):
                    found.setdefault(name, []).append(partition.name)
        return found

    def _find_open_groups(self, was_clean: bool) -> dict[str, list[str]]:
        """Return groups with pending offsets of transactions left open; drop those of unknown producers."""
        owners = self._owners()
        found: dict[str, list[str]] = {}
        for group in self._groups.list():
            for identity in group.offsets.waiting_for():
                if identity not in owners:
                    if not self._log.serves_all:
                        continue
                    self._groups.end_transaction(group.name, identity, committed=False)
                    continue
                name, value = owners[identity]
                if not value.state.is_ending and not (was_clean and group.name in value.groups):
                    found.setdefault(name, []).append(group.name)
        return found

    def _owners(self) -> Owners:
        return {value.producer: (name, value) for name, value in self._all()}

    def _all(self) -> list[tuple[str, TransactionValue]]:
        return [item for table in self._log.tables() for item in table]

    def _write(self, name: str, entries: list[Entry]) -> None:
        self._log.write(self._log.number_of(home_of(name)), entries)
