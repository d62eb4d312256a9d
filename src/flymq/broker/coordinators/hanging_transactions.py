"""Abort a transaction by what a partition shows of it: its producer, and the epoch of the coordinator.

An administrator sees a transaction that blocks the readers of a partition, not the transactional id it belongs to. If a
coordinator knows it, all of it is aborted, in every partition: half of it must never be committed. If none does, it is
hanging, and an abort marker is written to the partition.
"""

from __future__ import annotations

import logging

from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.replicas.partition import Partition
from flymq.broker.safety import wait_safe
from flymq.coordination.entries import ProducerIdentity
from flymq.coordination.transactions import EPOCH_MAX
from flymq.host.clock import Clock
from flymq.model.errors import (
    CoordinatorEpochFenced,
    InvalidRequest,
    ProducerFenced,
)
from flymq.record.control import Marker, MarkerType

logger = logging.getLogger(__name__)


async def abort_in_partition(
    transactions: Transactions,
    partition: Partition,
    producer: ProducerIdentity,
    *,
    coordinator_epoch: int,
    clock: Clock,
) -> None:
    """Abort the transaction that this producer has open in the partition; do nothing if there is none."""
    partition.check_leads()
    known = partition.log.producers.get(producer.producer_id)
    if known is None:
        return
    if producer.epoch < known.epoch:
        raise ProducerFenced(f"producer {known.producer_id} is at epoch {known.epoch}, not {producer.epoch}")
    if coordinator_epoch < known.coordinator_epoch:
        raise CoordinatorEpochFenced(
            f"producer {known.producer_id} is at coordinator epoch {known.coordinator_epoch}, not {coordinator_epoch}"
        )
    if known.open_since is None:
        return
    if await transactions.abort_owned(ProducerIdentity(known.producer_id, known.epoch)):
        return
    if producer.epoch > min(known.epoch + 1, EPOCH_MAX + 1):
        raise InvalidRequest(f"producer {known.producer_id} is at epoch {known.epoch}, far from {producer.epoch}")
    logger.warning("%s: aborted the hanging transaction of producer %d", partition.name, known.producer_id)
    marker = Marker(MarkerType.ABORT, known.producer_id, producer.epoch, coordinator_epoch, clock.now_ms())
    partition.check_leads()  # the coordinators were asked meanwhile
    if partition.open_epoch(known.producer_id) == known.epoch:
        partition.append_marker(marker)
    await wait_safe(partition.safe())
