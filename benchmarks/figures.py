"""Statistics: medians with their spread, and latencies without coordinated omission.

Rounds of two systems alternate and are reported by their median, with the minimum and maximum: on a shared machine a
single figure says as much about the other load as about the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple


class Figure(NamedTuple):
    """The median of several rounds, with minimum and maximum."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """The distance of the worst round from the median, relative to it."""
        if not self.median:
            return 0.0
        return max(self.high - self.median, self.median - self.low) / self.median


def figure(rounds: Sequence[float]) -> Figure:
    return Figure(median(rounds), min(rounds), max(rounds))


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the percentile of sorted values."""
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


class Schedule(NamedTuple):
    """When each message of a constant-rate load is due, independent of the messages before it.

    A load that waits for a response before it sends again stops measuring whenever the system is slow, and so misses
    the messages that would have waited ("coordinated omission"). Here message `n` is due at a time that depends only on
    the rate, and its latency counts from then: a pause of 100 ms at 1,000 messages/s affects 100 of them.
    """

    start_s: float
    rate_per_s: float

    def due_s(self, number: int) -> float:
        return self.start_s + number / self.rate_per_s

    def latencies_s(self, arrivals_s: Sequence[float]) -> list[float]:
        """Return the sorted latencies from the due times; messages arrive in the order of sending."""
        return sorted(arrival_s - self.due_s(number) for number, arrival_s in enumerate(arrivals_s))
