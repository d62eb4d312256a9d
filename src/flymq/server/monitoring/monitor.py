"""The broker's own state, for the HTTP endpoints of health, metrics and diagnosis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

from flymq.broker.broker import Broker
from flymq.gateways.connection import SharedByConnections
from flymq.gateways.listener import Listener
from flymq.gateways.rest.schema.shapes import Diagnosis, Health
from flymq.host.disk import Disk
from flymq.host.failure_log import FailureLog
from flymq.host.tasks import Tasks
from flymq.model.errors import BrokerStarting
from flymq.model.histogram import Histogram
from flymq.server.cluster_member import ClusterMember
from flymq.server.monitoring.diagnosis import INTERVAL_S, Samples
from flymq.server.monitoring.health import Phase, describe_health
from flymq.server.monitoring.loop_lag import LoopLag
from flymq.server.monitoring.metrics import Measured, broker_page, detailed_page

logger = logging.getLogger(__name__)


class Monitor:
    """Monitors one broker, from process start on."""

    def __init__(
        self, broker_id: int, shared: SharedByConnections, fsync: Histogram, disk: Disk, data_dir: Path
    ) -> None:
        self.phase = Phase.STARTING
        self.listeners: list[Listener] = []
        self._broker_id = broker_id
        self._shared = shared
        self._fsync = fsync
        self._disk = disk
        self._data_dir = data_dir
        self._started_at_s = shared.clock.now_ms() / 1000
        self._began_s = shared.clock.monotonic_s()
        self.loop_lag = LoopLag()
        self._measured: Measured | None = None
        self._samples: Samples | None = None

    def start(self, tasks: Tasks) -> None:
        tasks.spawn("loop lag", self.loop_lag.run())

    def serve(self, broker: Broker, tasks: Tasks, member: ClusterMember | None = None) -> None:
        """Start sampling: the broker has recovered its logs and accepts connections."""
        self._measured = Measured(
            broker,
            self.listeners,
            self._shared,
            self._fsync,
            self.loop_lag,
            self._disk,
            self._data_dir,
            self._started_at_s,
            member,
        )
        self._samples = Samples(self._measured)
        self.phase = Phase.SERVING
        tasks.spawn("samples", self._run(self._samples))

    async def _run(self, samples: Samples) -> None:
        failures = FailureLog(logger, "taking %s failed")
        while True:
            try:
                await samples.take()
                failures.succeeded("a sample")
            except Exception as error:  # the next one may succeed
                failures.failed("a sample", error)
            await asyncio.sleep(INTERVAL_S)

    @property
    def broker(self) -> Broker | None:
        """The broker, or None while it starts."""
        return None if self._measured is None else self._measured.broker

    # --- the endpoints

    @property
    def is_started(self) -> bool:
        return self.phase is not Phase.STARTING

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.SERVING

    def health(self) -> Health:
        uptime_s = self._shared.clock.monotonic_s() - self._began_s
        return describe_health(self.phase, self._measured, broker_id=self._broker_id, uptime_s=uptime_s)

    def metrics(self, *, detailed: bool) -> Iterator[str]:
        if self._measured is None:
            raise BrokerStarting
        return detailed_page(self._measured) if detailed else broker_page(self._measured)

    async def diagnosis(self) -> Diagnosis:
        if self._samples is None:
            raise BrokerStarting
        return await self._samples.diagnosis()
