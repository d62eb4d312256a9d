"""The clock: wall-clock time for records and retention, monotonic time for timeouts."""

from __future__ import annotations

import time
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # on macOS the latter goes on in sleep


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, as in records. May jump."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start. Never goes back."""

    def boottime_s(self) -> float:
        """The same, and it goes on while the machine is suspended: for what expires elsewhere meanwhile."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)  # called twice per request

    def boottime_s(self) -> float:
        return time.clock_gettime(_BOOTTIME)


class ManualClock:
    """A clock that only advances when it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def boottime_s(self) -> float:
        return self._monotonic_s

    def leap(self, *, ms: int) -> None:
        """Set the wall clock, as an operator or a time server does."""
        self._now_ms += ms

    def move(self, *, ms: int) -> None:
        self._now_ms += ms
        self._monotonic_s += ms / 1000
