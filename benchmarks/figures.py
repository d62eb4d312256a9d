"""What many measurements say together: a median with its spread, and latencies that hide no waiting.

Rounds of two systems take turns and are told by their median, with the lowest and the highest beside it: on a shared
machine a single figure says as much about the neighbours as about the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple


class Figure(NamedTuple):
    """The median of several rounds, and how far they lie apart."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """How far the worst round is from the median, as a share of it."""
        if not self.median:
            return 0.0
        return max(self.high - self.median, self.median - self.low) / self.median


def figure(rounds: Sequence[float]) -> Figure:
    return Figure(median(rounds), min(rounds), max(rounds))


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value that so large a share of the others does not exceed."""
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


class Schedule(NamedTuple):
    """When each message of a steady stream is to be sent, whatever became of those before it.

    A load that waits for an answer before it sends again stops the clock whenever the system is slow, and so leaves out
    the very messages that would have waited ("coordinated omission"). Here message `n` is due at a time that only the
    rate decides, and its latency counts from then: a pause of 100 ms at 1,000 messages/s is seen by 100 of them.
    """

    start_s: float
    rate_per_s: float

    def due_s(self, number: int) -> float:
        return self.start_s + number / self.rate_per_s

    def latencies_s(self, arrivals_s: Sequence[float]) -> list[float]:
        """Return, sorted, how long after its time each message arrived; they arrive in the order of sending."""
        return sorted(arrival_s - self.due_s(number) for number, arrival_s in enumerate(arrivals_s))
