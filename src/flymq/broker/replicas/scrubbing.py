"""The scrub: read sealed segments again, slowly, so that corruption is found before a reader meets it."""

from __future__ import annotations

import asyncio
import logging

from flymq.broker.replicas.partition import Partition
from flymq.broker.replicas.replicas import Replicas
from flymq.host.tasks import Tasks, Threads
from flymq.model.errors import CorruptLog, FileVanished, FlyMQError
from flymq.storage.log import Log
from flymq.storage.scrub import SegmentScrub

logger = logging.getLogger(__name__)

_FIRST_AFTER_S = 600.0  # after a start there is enough to read


class Scrubber:
    """Reads all partitions, one after the other, at a limited rate."""

    def __init__(self, replicas: Replicas, threads: Threads, *, bytes_per_s: int) -> None:
        self._replicas = replicas
        self._threads = threads
        self._bytes_per_s = bytes_per_s

    def start(self, tasks: Tasks, interval_ms: int) -> None:
        if self._bytes_per_s:
            tasks.spawn("scrub", self._run(interval_ms / 1000))

    async def _run(self, interval_s: float) -> None:
        await asyncio.sleep(min(_FIRST_AFTER_S, interval_s))
        while True:
            await self.scrub_all()
            await asyncio.sleep(interval_s)

    async def scrub_all(self) -> int:
        """Check every sealed segment; return the number of bytes that were read."""
        checked = 0
        for partition in self._replicas:
            if not isinstance(partition.log, Log):
                continue
            for segment in partition.log.segments[:-1]:
                try:
                    checked += await self._scrub(partition, SegmentScrub(partition.log, segment))
                except FlyMQError as error:
                    logger.warning("the scrub skips a segment of %s: %s", partition.name, error.message)
        corrupt = sum(len(partition.log.damage) for partition in self._replicas)
        logger.info("the scrub has read %d bytes; %d corrupt batches are known", checked, corrupt)
        return checked

    async def _scrub(self, partition: Partition, scrub: SegmentScrub) -> int:
        total = 0
        try:
            for step in scrub.steps():
                checked = await self._threads.run(step)
                total += checked
                await asyncio.sleep(checked / self._bytes_per_s)
        except (CorruptLog, FileVanished) as error:
            async with partition.upkeep:  # until compaction has exchanged the files that it is exchanging
                scrub.failed(error)
        return total
