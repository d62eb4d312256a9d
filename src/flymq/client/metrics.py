"""Client metrics: connections, requests and their latency, errors, retries, records; also in Prometheus format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from flymq.model.exposition import counters, gauges, histograms, labels
from flymq.model.histogram import BOUNDS_S, Histogram


class LatencyHistogram(Histogram):
    """A latency histogram with the same buckets as the broker's, and the maximum."""

    __slots__ = ("max_s",)

    def __init__(self) -> None:
        super().__init__()
        self.max_s = 0.0

    def observe(self, seconds: float) -> None:
        super().observe(seconds)
        self.max_s = max(self.max_s, seconds)

    def quantile_ms(self, fraction: float) -> float:
        """Return the latency that at least `fraction` of the requests did not exceed, within a factor of 2.5."""
        wanted = fraction * self.count
        seen = 0
        for bound_s, count in zip((*BOUNDS_S, self.max_s), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return 1000 * min(bound_s, self.max_s)
        return 0.0

    def copy(self) -> LatencyHistogram:
        copied = LatencyHistogram()
        copied.counts, copied.sum_s, copied.max_s = self.counts.copy(), self.sum_s, self.max_s
        return copied


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """A snapshot. `connections` and `requests_in_flight` are gauges, the other counts only grow."""

    connections: int = 0
    connects: int = 0
    connect_failures: int = 0
    requests: int = 0
    requests_in_flight: int = 0
    request_latency_ms_mean: float = 0.0
    request_latency_ms_p50: float = 0.0
    request_latency_ms_p99: float = 0.0
    request_latency_ms_max: float = 0.0
    errors: int = 0
    errors_by_code: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    records_sent: int = 0
    records_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    batches_skipped: int = 0
    client_id: str = ""
    request_latency: Histogram = field(default_factory=Histogram)

    def prometheus(self, *others: ClientMetrics) -> str:
        """Return the metrics in Prometheus text format, with those of other clients of the same program.

        They are told apart by the label `client_id`, so each client needs its own.
        """
        return "".join(_page([self, *others]))


class Counters:
    """The live counters of a client."""

    def __init__(self, client_id: str = "") -> None:
        self.client_id = client_id
        self.connections = 0
        self.connects = 0
        self.connect_failures = 0
        self.requests = 0
        self.requests_in_flight = 0
        self.latency = LatencyHistogram()
        self.errors: Counter[str] = Counter()
        self.retries = 0
        self.records_sent = 0
        self.records_received = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.batches_skipped = 0

    def snapshot(self) -> ClientMetrics:
        latency = self.latency.copy()
        return ClientMetrics(
            connections=self.connections,
            connects=self.connects,
            connect_failures=self.connect_failures,
            requests=self.requests,
            requests_in_flight=self.requests_in_flight,
            request_latency_ms_mean=1000 * latency.sum_s / latency.count if latency.count else 0.0,
            request_latency_ms_p50=latency.quantile_ms(0.50),
            request_latency_ms_p99=latency.quantile_ms(0.99),
            request_latency_ms_max=1000 * latency.max_s,
            errors=self.errors.total(),
            errors_by_code=dict(self.errors),
            retries=self.retries,
            records_sent=self.records_sent,
            records_received=self.records_received,
            bytes_sent=self.bytes_sent,
            bytes_received=self.bytes_received,
            batches_skipped=self.batches_skipped,
            client_id=self.client_id,
            request_latency=latency,
        )


# --- for Prometheus -------------------------------------------------------------------------------------------------

_GAUGES: Sequence[tuple[str, str, Callable[[ClientMetrics], float]]] = (
    ("flymq_client_connections", "Open connections.", lambda each: each.connections),
    ("flymq_client_requests_in_flight", "Requests waiting for an answer.", lambda each: each.requests_in_flight),
)
_COUNTERS: Sequence[tuple[str, str, Callable[[ClientMetrics], float]]] = (
    ("flymq_client_connects_total", "Connections opened.", lambda each: each.connects),
    ("flymq_client_connect_failures_total", "Failed connection attempts.", lambda each: each.connect_failures),
    ("flymq_client_requests_total", "Requests sent.", lambda each: each.requests),
    ("flymq_client_retries_total", "Retried requests and batches.", lambda each: each.retries),
    ("flymq_client_records_sent_total", "Records written.", lambda each: each.records_sent),
    ("flymq_client_records_received_total", "Records read.", lambda each: each.records_received),
    ("flymq_client_bytes_sent_total", "Bytes sent.", lambda each: each.bytes_sent),
    ("flymq_client_bytes_received_total", "Bytes received.", lambda each: each.bytes_received),
    (
        "flymq_client_batches_skipped_total",
        "Batches that could not be decoded and were skipped.",
        lambda each: each.batches_skipped,
    ),
)


def _page(clients: Iterable[ClientMetrics]) -> Iterator[str]:
    named = [(labels(client_id=each.client_id), each) for each in clients]
    for name, text, value in _GAUGES:
        yield from gauges(name, text, [(at, value(each)) for at, each in named])
    for name, text, value in _COUNTERS:
        yield from counters(name, text, [(at, value(each)) for at, each in named])
    yield from counters(
        "flymq_client_errors_total",
        "Requests that failed.",
        [(f"{at},{labels(code=code)}", count) for at, each in named for code, count in each.errors_by_code.items()],
    )
    yield from histograms(
        "flymq_client_request_duration_seconds",
        "Request latency, including the time a fetch waits at the broker for data.",
        [(at, each.request_latency) for at, each in named],
    )
