"""Accounting of calls: quotas, traffic by protocol and topic, errors by protocol and code."""

from __future__ import annotations

from flymq.broker.replicas.partition import PartitionRead
from flymq.broker.service.caller import Caller
from flymq.broker.service.quota import ClientQuota
from flymq.broker.service.requests import Requests
from flymq.broker.service.traffic import Traffic
from flymq.host.clock import Clock
from flymq.model.errors import FlyMQError


class Accounts:
    """Counts on behalf of the service."""

    def __init__(self, clock: Clock, produce_quota: ClientQuota, fetch_quota: ClientQuota) -> None:
        self._clock = clock
        self._produce_quota = produce_quota
        self._fetch_quota = fetch_quota
        self.traffic = Traffic()
        self.requests = Requests()

    def produced(self, caller: Caller, size: int) -> int:
        """Count a produce request; return the throttle time in milliseconds."""
        return self._charge(self._produce_quota, caller, size) if self._produce_quota.is_set else 0

    def wrote(self, caller: Caller, topic: str, records: int, size: int) -> None:
        self.traffic.wrote(caller.protocol, topic, records, size)

    def fetched(self, caller: Caller, reads: list[PartitionRead]) -> int:
        """Count the response of a fetch; return the throttle time in milliseconds."""
        size = 0
        for read in reads:
            if read.error is not None:
                self.failed(caller, read.error)
            elif read.slice is not None:
                size += read.slice.length
                self.traffic.read(caller.protocol, read.name.topic, read.slice.offsets, read.slice.length)
        return self._charge(self._fetch_quota, caller, size) if size else 0

    def gave(self, caller: Caller, topic: str, records: int, size: int) -> int:
        """Like `fetched`, for decoded records, whose number is known."""
        self.traffic.read(caller.protocol, topic, records, size)
        return self._charge(self._fetch_quota, caller, size)

    def failed(self, caller: Caller, error: FlyMQError) -> None:
        """Count an error of a request, or of a part of one."""
        self.requests.failed(caller.protocol, error.code)

    def _charge(self, quota: ClientQuota, caller: Caller, size: int) -> int:
        if not quota.is_set or caller.is_peer:
            return 0
        return quota.throttle_ms(caller.quota_name, self._clock.monotonic_s(), size)
