"""What time it is: by the wall for records and retention, by the monotonic clock for waiting."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, as records carry them. May jump."""

    def monotonic_s(self) -> float:
        """Seconds from an unknown start. Never goes back."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)  # asked twice for each request


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def move(self, *, ms: int) -> None:
        self._now_ms += ms
        self._monotonic_s += ms / 1000
