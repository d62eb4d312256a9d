"""How long a client that sends or reads too much has to wait. Arithmetic only: time is passed in.

A client's bytes are paid from a bucket that fills at its quota and holds one second of it. Nothing is ever refused: a
request may overdraw the bucket, and the client then waits until the debt is paid, which keeps its rate at the quota
whatever the size of its requests.
"""

from __future__ import annotations

import math
from collections import OrderedDict

BURST_S = 1.0
"""What a client at rest may send at once, in seconds of its quota."""

DEBT_S_MAX = 30.0
"""The longest wait. What one huge request owes beyond it is forgiven, so that no client is locked out for hours."""


class TokenBucket:
    """The account of one client: bytes it may still send, negative while it owes some."""

    __slots__ = ("_balance_bytes", "_bytes_per_s", "_updated_s")

    def __init__(self, bytes_per_s: int, *, now_s: float) -> None:
        assert bytes_per_s > 0
        self._bytes_per_s = bytes_per_s
        self._balance_bytes = bytes_per_s * BURST_S
        self._updated_s = now_s

    def throttle_ms(self, now_s: float, size: int) -> int:
        """Charge `size` bytes, and return how long from now the client has to wait before its next request."""
        rate = self._bytes_per_s
        filled = min(rate * BURST_S, self._balance_bytes + (now_s - self._updated_s) * rate)
        self._balance_bytes = max(-rate * DEBT_S_MAX, filled - size)
        self._updated_s = now_s
        return max(0, math.ceil(-self._balance_bytes * 1000 / rate))


class ClientQuota:
    """The same quota for each client, told apart by name. 0 bytes a second is no quota at all.

    A client that has paused for a second has a full bucket, as if it were new. So the accounts kept are bounded by
    dropping the one unused for longest.
    """

    def __init__(self, bytes_per_s: int, *, clients_max: int = 10_000) -> None:
        self._bytes_per_s = bytes_per_s
        self._clients_max = clients_max
        self.is_set = bytes_per_s > 0
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def throttle_ms(self, client: str, now_s: float, size: int) -> int:
        """Charge `client` for `size` bytes, and return how long it has to wait."""
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
