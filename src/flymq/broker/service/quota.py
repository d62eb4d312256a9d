"""Byte-rate quotas, as a token bucket per client. Arithmetic only: time is passed in.

A bucket fills at the rate of the quota and holds one second of it. No request is refused: it may overdraw the bucket,
and the client is throttled until the debt is paid, which keeps its rate at the quota for requests of any size.
"""

from __future__ import annotations

import math
from collections import OrderedDict

BURST_S = 1.0
"""The burst an idle client may send, in seconds of its quota."""

DEBT_S_MAX = 30.0
"""The maximum throttle time. Debt beyond it is dropped, so that one huge request does not block a client for hours."""


class TokenBucket:
    """The bucket of one client: bytes it may still send; negative: debt."""

    __slots__ = ("_balance_bytes", "_bytes_per_s", "_updated_s")

    def __init__(self, bytes_per_s: int, *, now_s: float) -> None:
        assert bytes_per_s > 0
        self._bytes_per_s = bytes_per_s
        self._balance_bytes = bytes_per_s * BURST_S
        self._updated_s = now_s

    def throttle_ms(self, now_s: float, size: int) -> int:
        """Charge `size` bytes, and return the throttle time of the client."""
        rate = self._bytes_per_s
        filled = min(rate * BURST_S, self._balance_bytes + (now_s - self._updated_s) * rate)
        self._balance_bytes = max(-rate * DEBT_S_MAX, filled - size)
        self._updated_s = now_s
        return max(0, math.ceil(-self._balance_bytes * 1000 / rate))


class ClientQuota:
    """The same quota for each client, by name. 0 bytes per second: no quota.

    After an idle second a client has a full bucket, like a new one. So the least recently used buckets can be dropped.
    """

    def __init__(self, bytes_per_s: int, *, clients_max: int = 10_000) -> None:
        self._bytes_per_s = bytes_per_s
        self._clients_max = clients_max
        self.is_set = bytes_per_s > 0
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def throttle_ms(self, client: str, now_s: float, size: int) -> int:
        """Charge `client` for `size` bytes, and return its throttle time."""
        if not self.is_set:
            return 0
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = TokenBucket(self._bytes_per_s, now_s=now_s)
            if len(self._buckets) > self._clients_max:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(client)
        return bucket.throttle_ms(now_s, size)
