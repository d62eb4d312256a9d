"""First batches of a transaction to a partition, in a cluster: appended when the coordinator has confirmed them.

Later batches of the same producer queue up behind, so that they stay in order; the batches of others do not wait. Once
the transaction is open in the partition, its batches are appended at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any

from flymq.broker.coordinators.transactions import Transactions, producer_of
from flymq.broker.replicas.partition import Partition, Written
from flymq.broker.safety import wait_safe
from flymq.broker.service.slow_appends import WAITING_BYTES_MAX, SlowAppends
from flymq.host.tasks import Tasks
from flymq.model.coordinators import Joining
from flymq.model.errors import FlyMQError
from flymq.record.header import Buffer

logger = logging.getLogger(__name__)

_THROTTLE_MS = 100

Append = Callable[[Callable[[], bool], Buffer], Written]
"""Appends a batch, for which the coordinator's confirmation must hold."""


class FirstBatches:
    """The first batches that wait for coordinators."""

    def __init__(self, transactions: Transactions, slow_appends: SlowAppends) -> None:
        self._transactions = transactions
        self._slow_appends = slow_appends
        self._tasks = Tasks(_log_failure)
        self.waiting_bytes = 0

    @property
    def throttle_ms(self) -> int:
        """How long a client should wait before it sends more."""
        return _THROTTLE_MS if self.waiting_bytes > WAITING_BYTES_MAX else 0

    def must_queue(self, partition: Partition, batches: Buffer) -> bool:
        """Whether this batch must not be appended at once."""
        transactions = self._transactions
        return transactions.is_clustered and transactions.must_confirm(partition, producer_of(batches))

    def add(
        self, name: str, partition: Partition, batches: Buffer, joining: Joining, append: Append
    ) -> asyncio.Future[Written]:
        """Queue an append of a copy of this batch; return when it is acknowledged."""
        acknowledged: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        kept, turn = bytes(batches), ExitStack()
        before = turn.enter_context(
            self._transactions.first_writes.queue(partition.name, producer_of(kept).producer_id)
        )
        self.waiting_bytes += len(kept)
        turn.callback(self._no_longer_waits, len(kept))
        work = self._append(name, partition, kept, joining, append, turn, before)
        self._tasks.spawn(f"first batch to {partition.name}", _pass_on(work, acknowledged))
        return acknowledged

    def _no_longer_waits(self, size: int) -> None:
        self.waiting_bytes -= size

    async def _append(
        self,
        name: str,
        partition: Partition,
        batches: bytes,
        joining: Joining,
        append: Append,
        turn: ExitStack,
        before: asyncio.Future[None] | None,
    ) -> Written:
        with turn:
            if before is not None:
                await before
            partition.check_leads()
            holds = await self._transactions.confirm(name, partition, producer_of(batches), joining)
            if self._slow_appends.must_queue(partition, batches):
                return await self._slow_appends.add(partition, batches, partial(append, holds))
            written = append(holds, batches)
        await wait_safe(written.safe)
        return written

    async def close(self) -> None:
        """Give up what waits: its outcome is reported as unknown."""
        await self._tasks.close()


async def _pass_on(work: Coroutine[Any, Any, Written], acknowledged: asyncio.Future[Written]) -> None:
    try:
        written = await work
    except FlyMQError as error:
        if not acknowledged.done():
            acknowledged.set_exception(error)
    except BaseException:
        acknowledged.cancel()
        raise
    else:
        if not acknowledged.done():
            acknowledged.set_result(written)


def _log_failure(name: str, error: BaseException) -> None:
    logger.error("%s failed", name, exc_info=error)
