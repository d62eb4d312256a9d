"""Metrics as Prometheus reads them: checked with its own library."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from flymq.model.exposition import counters, gauges, histograms, labels
from flymq.model.histogram import BOUNDS_S, Histogram


def test_labels_may_hold_anything() -> None:
    nasty = 'back\\slash "quote"\nline é'
    (family,) = text_string_to_metric_families("".join(gauges("g", "Text.", [(labels(name=nasty, number=7), 1.5)])))
    (sample,) = family.samples
    assert sample.labels == {"name": nasty, "number": "7"}
    assert (family.type, sample.value) == ("gauge", 1.5)


def test_a_counter_is_one_for_prometheus_too() -> None:
    (family,) = text_string_to_metric_families("".join(counters("things_total", "Text.", [("", 10**15)])))
    assert (family.type, family.samples[0].value) == ("counter", 10**15)


def test_a_histogram_counts_everything_below_each_bound() -> None:
    histogram = Histogram()
    for seconds in (0.00005, 0.001, 0.0011, 99.0):
        histogram.observe(seconds)
    (family,) = text_string_to_metric_families("".join(histograms("h", "Text.", [(labels(a="b"), histogram)])))
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if sample.name == "h_bucket"}
    assert len(buckets) == len(BOUNDS_S) + 1
    assert (buckets["0.0001"], buckets["0.001"], buckets["0.0025"], buckets["+Inf"]) == (1, 2, 3, 4)
    totals = {sample.name: sample.value for sample in family.samples if "le" not in sample.labels}
    assert totals["h_count"] == histogram.count == 4
    assert abs(totals["h_sum"] - 99.00215) < 1e-9


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]*", fullmatch=True), st.text(), max_size=3),
    st.floats(allow_nan=False) | st.integers(-(1 << 53), 1 << 53),
)
def test_prometheus_reads_from_us_what_it_reads_from_its_own_library(values: dict[str, str], value: float) -> None:
    family = GaugeMetricFamily("g", "Text.", labels=list(values))
    family.add_metric(list(values.values()), value)
    registry = CollectorRegistry()
    registry.register(Collected([family]))
    ours = "".join(gauges("g", "Text.", [(labels(**values), value)]))
    assert parsed(ours) == parsed(generate_latest(registry).decode())


class Collected(Collector):
    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> list[GaugeMetricFamily]:
        return self._families


def parsed(page: str) -> list[Metric]:
    return list(text_string_to_metric_families(page))
