"""Time for what deletes by age: the wall clock, unless it has leapt forward.

    <data dir>/clock    a note (recovery/checksummed_note.py): the time when the broker was last seen running, in ms

A wall clock can be wrong for a while: set by hand, at boot before the first answer of a time server, after a restore of
a virtual machine. Retention that believes it deletes what nobody has read. So the wall clock is compared with the
monotonic one, and at start with the time that was noted last. After a leap forward this clock goes on at its own pace,
and takes the leap over only when it has lasted for a while. A leap back is taken over at once: it deletes less.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

from flymq.host.clock import Clock
from flymq.host.disk import Disk, write_aside
from flymq.host.failure_log import FailureLog
from flymq.host.tasks import Threads
from flymq.model.errors import ResourcesExhausted, StorageError
from flymq.storage.recovery.checksummed_note import encode_note, read_note

logger = logging.getLogger(__name__)

CLOCK_NAME = "clock"
_SAVE_S = 60.0
LEAP_MS = 60_000
"""Smaller steps are taken over at once."""
DOWNTIME_MS = 60 * 60_000
"""After a longer downtime, what is on the disk is not deleted at once: those who read it were perhaps down as well."""


class SteadyClock:
    """A wall clock that takes over a leap forward only after `wait_ms`."""

    def __init__(self, clock: Clock, *, last_ms: int | None = None, wait_ms: int) -> None:
        """`last_ms` is the time when the broker was last seen running."""
        self._clock = clock
        self._wait_s = wait_ms / 1000
        self._leap_ms = 0
        self._leap_since_s = 0.0
        now_ms = clock.now_ms()
        self._anchor_s = clock.monotonic_s()
        self._anchor_ms = last_ms if last_ms is not None and now_ms - last_ms > DOWNTIME_MS else now_ms

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def boottime_s(self) -> float:
        return self._clock.boottime_s()

    @property
    def leap_ms(self) -> int:
        """How far the wall clock is ahead of this one; 0 if it is trusted."""
        return self._leap_ms

    @property
    def problems(self) -> list[str]:
        if not self._leap_ms:
            return []
        left_min = max(0.0, self._leap_since_s + self._wait_s - self._clock.monotonic_s()) / 60
        return [
            f"The clock leapt forward by {_duration(self._leap_ms)}. Retention does not count this time for the next "
            f"{left_min:.0f} min. Check the clock of this machine."
        ]

    def now_ms(self) -> int:
        """Milliseconds since 1970, without a leap that is too young to be trusted."""
        wall_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        steady_ms = self._anchor_ms + round((now_s - self._anchor_s) * 1000)
        leap_ms = wall_ms - steady_ms
        if leap_ms <= LEAP_MS or not self._wait_s:
            if self._leap_ms:
                logger.warning("the clock is back: retention goes on by it")
            return self._trust(wall_ms, now_s)
        if abs(leap_ms - self._leap_ms) > LEAP_MS:  # it leapt now, or once more
            self._leap_ms, self._leap_since_s = leap_ms, now_s
            logger.warning(
                "the clock leapt forward by %s: retention does not count this time for %s, in case the clock is wrong",
                _duration(leap_ms),
                _duration(round(self._wait_s * 1000)),
            )
        elif now_s - self._leap_since_s >= self._wait_s:
            logger.warning("the clock has been ahead by %s for long: retention goes on by it", _duration(leap_ms))
            return self._trust(wall_ms, now_s)
        return steady_ms

    def _trust(self, wall_ms: int, now_s: float) -> int:
        self._anchor_ms, self._anchor_s, self._leap_ms = wall_ms, now_s, 0
        return wall_ms


def read_last_time(disk: Disk, data_dir: Path) -> int | None:
    """Return when the broker was last seen running; None if that is unknown."""
    return read_note(disk, data_dir / CLOCK_NAME, int)


def write_last_time(disk: Disk, data_dir: Path, now_ms: int) -> None:
    """Note that the broker is running. Without fsync: it is one minute old at most, or two after a power failure."""
    write_aside(disk, data_dir / CLOCK_NAME, encode_note(now_ms))


async def run_clock(clock: SteadyClock, disk: Disk, data_dir: Path, threads: Threads) -> None:
    """Notice leaps, and note the time, once a minute."""
    failures = FailureLog(logger, "the time cannot be saved in %s")
    while True:
        now_ms = clock.now_ms()
        try:
            await threads.run(partial(write_last_time, disk, data_dir, now_ms))
            failures.succeeded(CLOCK_NAME)
        except ResourcesExhausted:  # the disk is full, which is logged elsewhere
            pass
        except StorageError as error:
            failures.failed(CLOCK_NAME, error)
        await asyncio.sleep(_SAVE_S)


def _duration(ms: int) -> str:
    minutes = ms / 60_000
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 60 / 24:.1f} days"
