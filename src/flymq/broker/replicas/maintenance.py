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
from flymq.host.tasks import Tasks, Threads, run_steps
from flymq.host.time_slices import TimeSlice
from flymq.model.errors import CorruptLog, ResourcesExhausted
from flymq.storage.compaction import compactor
from flymq.storage.flusher import Flusher
from flymq.storage.log import Log

logger = logging.getLogger(__name__)

PRODUCER_EXPIRY_MS = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class MaintenanceIntervals:
    retention_ms: int = 60_000
    compaction_ms: int = 15_000
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

    async def retain(self, partition: Partition) -> None:
        """Delete records by the retention settings of the topic."""
        log, now_ms = partition.log, self._clock.now_ms()
        log.producers.expire(now_ms - PRODUCER_EXPIRY_MS)
        if not partition.leads:
            return  # a follower deletes what its leader has deleted
        async with partition.upkeep:
            if isinstance(log, Log):
                await run_steps(self._threads, log.load_times())
            while (removal := log.retain(now_ms)) is not None:
                await self._threads.run(removal)

    async def compact(self, partition: Partition) -> None:
        """Compact topics with `cleanup.policy` compact."""
        log, now_ms = partition.log, self._clock.now_ms()
        if not isinstance(log, Log) or not log.config.cleanup_policy.compacts:
            return
        if log.gate.refusal is not None:
            return  # it would take the space that is left
        async with partition.upkeep:
            compactor.roll_late(log, now_ms)
            await run_steps(self._threads, log.load_times())
            committed = partition.high_watermark
            if compactor.needs_checkpoint(log, now_ms, committed=committed):
                await self._flusher.checkpoint(log)
            plan = compactor.plan(log, now_ms, committed=committed)
        if plan is None:
            return
        result = await self._threads.run(plan.run)
        async with partition.upkeep:
            await run_steps(self._threads, compactor.finish(log, plan, result))

    async def checkpoint(self, partition: Partition) -> None:
        """Write a checkpoint of the log, so that recovery has little to scan."""
        if isinstance(partition.log, Log):
            async with partition.upkeep:
                await self._flusher.checkpoint(partition.log)

    async def _repeat(self, interval_ms: int, work: Callable[[Partition], Awaitable[None]]) -> None:
        failures = FailureLog(logger, f"{work.__name__} of %s failed")
        while True:
            await asyncio.sleep(interval_ms / 1000)
            slice_ = TimeSlice()
            for partition in self._replicas:
                await slice_.yield_if_over()  # most of them have nothing to do, and thousands of them take a while
                await self._maintain(partition, work, failures)

    async def _maintain(
        self, partition: Partition, work: Callable[[Partition], Awaitable[None]], failures: FailureLog
    ) -> None:
        if partition.log.failure is not None:
            return
        name = str(partition.name)
        try:
            with partition.in_use():
                await work(partition)
            failures.succeeded(name)
        except ResourcesExhausted as error:  # the disk is full, which is logged once for all partitions
            if isinstance(partition.log, Log):
                partition.log.gate.report(error)
        except CorruptLog as error:  # logged once, and shown by /health until the segment is gone
            partition.log.damage.note(error)
        except Exception as error:  # whatever it is, the next partition and the next time have their turn
            if partition.log.failure is None:  # else its state tells it, or its topic was deleted
                failures.failed(name, error)
