"""Pauses grow and scatter; latencies are counted cheaply and near enough; Prometheus can read what is counted."""

import random
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from flymq.client.metrics import Counters, LatencyHistogram
from flymq.client.retry import Backoff


class Fixed(random.Random):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


def test_each_pause_is_twice_the_one_before_up_to_the_limit():
    backoff = Backoff(first_ms=100, max_ms=1000)
    assert [backoff.delay_s(attempt, Fixed(1.0)) for attempt in (1, 2, 3, 4, 5, 500)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_half_of_a_pause_is_chance():
    backoff = Backoff(first_ms=100, max_ms=1000)
    assert backoff.delay_s(1, Fixed(0.0)) == 0.05
    assert 0.05 <= backoff.delay_s(1, random.Random(7)) <= 0.1


def test_quantiles_are_right_within_a_factor_of_two_and_a_half():
    histogram = LatencyHistogram()
    for milliseconds in range(1, 101):
        histogram.observe(milliseconds / 1000)
    assert 50 <= histogram.quantile_ms(0.5) <= 100
    assert 99 <= histogram.quantile_ms(0.99) <= 100, "never more than the slowest"
    assert LatencyHistogram().quantile_ms(0.5) == 0.0


def test_a_snapshot_stands_still():
    counters = Counters()
    before = counters.snapshot()
    counters.errors["NOT_LEADER"] += 2
    counters.latency.observe(0.001)
    counters.requests += 1
    after = counters.snapshot()
    assert (before.errors, before.requests) == (0, 0)
    assert (after.errors, after.errors_by_code, after.requests) == (2, {"NOT_LEADER": 2}, 1)
    assert after.request_latency.count == 1


HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "python-client.md"


def test_prometheus_reads_the_counts_of_several_clients_on_one_page():
    first, second = Counters("orders"), Counters("billing")
    first.records_sent = 7
    first.errors["NOT_LEADER"] += 2
    second.latency.observe(0.003)
    page = first.snapshot().prometheus(second.snapshot())
    families = {family.name: family for family in text_string_to_metric_families(page)}
    sent = {each.labels["client_id"]: each.value for each in families["flymq_client_records_sent"].samples}
    assert sent == {"orders": 7, "billing": 0}
    (failed,) = families["flymq_client_errors"].samples
    assert (failed.labels, failed.value) == ({"client_id": "orders", "code": "NOT_LEADER"}, 2)
    counts = {
        each.labels["client_id"]: each.value
        for each in families["flymq_client_request_duration_seconds"].samples
        if each.name.endswith("_count")
    }
    assert counts == {"orders": 0, "billing": 1}


def test_every_metric_of_a_client_is_documented_and_every_documented_one_exists():
    exposed = set(re.findall(r"^# TYPE (\S+)", Counters().snapshot().prometheus(), re.MULTILINE))
    documented = set(re.findall(r"^\| `(flymq_client_\w+)`", HOW_TO.read_text(), re.MULTILINE))
    assert documented == exposed
