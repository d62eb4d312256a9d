"""Deadlines of a connection: of a request that is being received, and of responses that the client does not read.

A request must arrive within the timeout. A larger one may take longer, as long as it arrives at a minimum rate: slow
links are served, and a client that sends a byte now and then is not. While others wait for memory, that grace ends.

The state of a connection is sampled about once a second, so deadlines cost nothing per request.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

PROGRESS_BYTES_MIN = 256 << 10
"""What a large request must bring in each interval of the timeout: 9 KB/s with the default of 30 s."""


class Unfinished(NamedTuple):
    """A request that is being received."""

    number: int
    """Differs from that of the requests before it on the same connection."""
    received_bytes: int


class ArrivalDeadline:
    """Watches the request that a connection is receiving."""

    __slots__ = ("_began_s", "_number", "_received", "_since_s")

    def __init__(self) -> None:
        self._number = -1
        self._began_s = 0.0
        self._since_s = 0.0  # when progress was last measured
        self._received = 0

    def is_missed(self, now_s: float, unfinished: Unfinished | None, timeout_s: float, *, is_short: bool) -> bool:
        """Take a sample. `is_short`: memory is short, so there is no grace for large requests."""
        if unfinished is None:
            self._number = -1
            return False
        if unfinished.number != self._number:
            self._number, self._received = unfinished
            self._began_s = self._since_s = now_s
            return False
        if is_short and now_s - self._began_s >= timeout_s:
            return True
        if now_s - self._since_s < timeout_s:
            return False
        progress = unfinished.received_bytes - self._received
        self._since_s, self._received = now_s, unfinished.received_bytes
        return progress < PROGRESS_BYTES_MIN

    def reset(self) -> None:
        """The broker does not read at the moment: this time does not count."""
        self._number = -1


class StandstillDeadline:
    """Watches something that must change from time to time, such as the unsent responses of a connection."""

    __slots__ = ("_seen", "_since_s")

    def __init__(self) -> None:
        self._seen: Hashable = None
        self._since_s = 0.0

    def is_missed(self, now_s: float, seen: Hashable, timeout_s: float) -> bool:
        """Take a sample; None: there is nothing to wait for."""
        if seen is None or seen != self._seen:
            self._seen, self._since_s = seen, now_s
            return False
        return now_s - self._since_s >= timeout_s
