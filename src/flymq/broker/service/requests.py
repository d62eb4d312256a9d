"""Request metrics: counts, latencies and errors, by protocol and operation."""

from __future__ import annotations

from collections import Counter

from flymq.model.histogram import Histogram


class Requests:
    """Counters of all connections since the start, closed ones included."""

    def __init__(self) -> None:
        self.durations: dict[tuple[str, str], Histogram] = {}
        self.failures: Counter[tuple[str, str]] = Counter()

    def observe(self, protocol: str, operation: str, seconds: float) -> None:
        """Count a completed request. Its latency includes a wait that the client requested."""
        self.of(protocol, operation).observe(seconds)

    def of(self, protocol: str, operation: str) -> Histogram:
        """Return the latency histogram of one operation, for hot paths."""
        histogram = self.durations.get((protocol, operation))
        if histogram is None:
            histogram = self.durations[protocol, operation] = Histogram()
        return histogram

    def failed(self, protocol: str, code: str) -> None:
        """Count an error of a request, or of a part of one."""
        self.failures[protocol, code] += 1
