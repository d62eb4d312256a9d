"""Background maintenance of logs: retention, compaction, checkpoints. Each partition on its own: an error in one
does not affect the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replicas import Replicas
from flymq.host.clock import Clock
from flymq.host.failure_log import FailureLog
from flymq.host.tasks import Tasks, Threads
from flymq.model.errors import ResourcesExhausted
from flymq.storage.compaction import compactor
from flymq.storage.data_directory import PartitionLog
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log

logger = logging.getLogger(__name__)

PRODUCER_EXPIRY_MS = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class MaintenanceIntervals:
    retention_ms: int = 60_000
    compaction_ms: int = 30_000
    checkpoint_ms: int = 60_000


class Maintenance:
    """Maintains all partitions, one at a time."""

    def __init__(self, replicas: Replicas, flusher: Flusher, threads: Threads, clock: Clock) -> None:
        """`clock` decides what is old: storage/steady_clock.py."""
        self._replicas = replicas
        self._flusher = flusher
        self._threads = threads
        self._clock = clock

    def start(self, tasks: Tasks, intervals: MaintenanceIntervals) -> None:
        tasks.spawn("retention", self._repeat(intervals.retention_ms, self.retain))
        tasks.spawn("compaction", self._repeat(intervals.compaction_ms, self.compact))
        tasks.spawn("checkpoints", self._repeat(intervals.checkpoint_ms, self.checkpoint))

    async def retain(self, log: PartitionLog) -> None:
        """Delete records by the retention settings of the topic."""
        now_ms = self._clock.now_ms()
        log.producers.expire(now_ms - PRODUCER_EXPIRY_MS)
        removal = log.retain(now_ms)
        if removal is not None:
            await self._threads.run(removal)

    async def compact(self, log: PartitionLog) -> None:
        """Compact topics with `cleanup.policy` compact."""
        if not isinstance(log, Log):
            return
        if log.gate.refusal is not None:
            return  # it would take the space that is left
        plan = compactor.plan(log, self._clock.now_ms())
        if plan is not None:
            compactor.finish(log, plan, await self._threads.run(plan.run))

    async def checkpoint(self, log: PartitionLog) -> None:
        """Write a checkpoint of the log, so that recovery has little to scan."""
        if isinstance(log, Log):
            await self._flusher.checkpoint(log)

    async def _repeat(self, interval_ms: int, work: Callable[[PartitionLog], Awaitable[None]]) -> None:
        failures = FailureLog(logger, f"{work.__name__} of %s failed")
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for partition in self._replicas:
                await self._maintain(partition, work, failures)

    async def _maintain(
        self, partition: Partition, work: Callable[[PartitionLog], Awaitable[None]], failures: FailureLog
    ) -> None:
        if partition.log.failure is not None:
            return
        name = str(partition.name)
        try:
            with partition.upkeep():
                await work(partition.log)
            failures.succeeded(name)
        except ResourcesExhausted as error:  # the disk is full, which is logged once for all partitions
            if isinstance(partition.log, Log):
                partition.log.gate.report(error)
        except Exception as error:  # whatever it is, the next partition and the next time have their turn
            if partition.log.failure is None:  # else its state tells it, or its topic was deleted
                failures.failed(name, error)
