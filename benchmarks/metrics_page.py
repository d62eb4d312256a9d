"""Rendering `/metrics/detailed`, ours and with prometheus-client, in the same run.

    python -m benchmarks.metrics_page [--quick]

The event loop can serve nobody else during a step, so the longest step matters more than the sum. Ours is streamed: a
step ends after 2 ms. prometheus-client renders a whole page (`generate_latest`); its streamed variants call it once per
metric family, or once per 200 samples with the repeated headers removed. Steps are measured in CPU time of
the thread, so that neighbours on the machine do not count.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import timeit
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import prometheus_client
from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.figures import figure
from benchmarks.row import Row, row, show
from flymq.cluster.catalog import PartitionState
from flymq.host.time_slices import TimeSlice
from flymq.model.histogram import BOUNDS_S, Histogram
from flymq.server.monitoring.metrics import Measured, detailed_page

_PARTITIONS_PER_TOPIC = 10
_SAMPLES_PER_STEP = 200


@dataclass(slots=True)
class _Log:
    size: int
    start_offset: int
    failure: None = None


@dataclass(slots=True)
class _Partition:
    log: _Log
    high_watermark: int


@dataclass(slots=True)
class _Topic:
    name: str
    partitions: list[_Partition] = field(default_factory=list)
    states: list[PartitionState] = field(default_factory=list)


def _topics(partitions: int) -> list[_Topic]:
    made = []
    for number in range(partitions // _PARTITIONS_PER_TOPIC):
        topic = _Topic(f"orders-of-region-{number}")
        for index in range(_PARTITIONS_PER_TOPIC):
            topic.partitions.append(_Partition(_Log(number * 104_729 + index, number), number * 7_919 + index))
            topic.states.append(PartitionState(0, 1, [0], [0]))
        made.append(topic)
    return made


def _ours(topics: list[_Topic]) -> Callable[[], Iterator[bytes]]:
    groups = SimpleNamespace(list=list)
    broker = SimpleNamespace(traffic=[], topics=topics, groups=groups)
    measured = cast(Measured, SimpleNamespace(broker=broker))

    def steps() -> Iterator[bytes]:
        piece: list[str] = []
        slice_ = TimeSlice()
        for line in detailed_page(measured):
            piece.append(line)
            if slice_.is_over:
                yield "".join(piece).encode()
                piece = []
                slice_ = TimeSlice()
        yield "".join(piece).encode()

    return steps


# --- prometheus-client ----------------------------------------------------------------------------------------------

_VALUES: dict[str, Callable[[_Partition, PartitionState], float]] = {
    "flymq_partition_log_bytes": lambda partition, _: partition.log.size,
    "flymq_partition_offline": lambda partition, _: int(partition.log.failure is not None),
    "kafka_topic_partition_current_offset": lambda partition, _: partition.high_watermark,
    "kafka_topic_partition_oldest_offset": lambda partition, _: partition.log.start_offset,
    "kafka_topic_partition_leader": lambda _, state: state.leader,
    "kafka_topic_partition_leader_is_preferred": lambda _, state: int(state.leader == state.replicas[0]),
    "kafka_topic_partition_replicas": lambda _, state: len(state.replicas),
    "kafka_topic_partition_in_sync_replica": lambda _, state: len(state.isr),
    "kafka_topic_partition_under_replicated_partition": lambda _, state: int(len(state.isr) < len(state.replicas)),
}


class _Collected(NamedTuple):
    """The argument of `generate_latest`: anything with `collect()`."""

    collect: Callable[[], Iterator[Any]]


def _families(topics: list[_Topic], samples_max: int | None = None) -> Iterator[GaugeMetricFamily]:
    """Yield the families that ours has, in pieces of at most `samples_max` samples."""
    yield GaugeMetricFamily("kafka_brokers", "Number of brokers.", 1)
    sizes = GaugeMetricFamily("kafka_topic_partitions", "Number of partitions.", labels=["topic"])
    for topic in topics:
        sizes.add_metric([topic.name], len(topic.partitions))
        if samples_max and len(sizes.samples) >= samples_max:
            yield sizes
            sizes = GaugeMetricFamily("kafka_topic_partitions", "Number of partitions.", labels=["topic"])
    yield sizes
    for name, value in _VALUES.items():
        family = GaugeMetricFamily(name, "Text.", labels=["topic", "partition"])
        for topic in topics:
            for number, (partition, state) in enumerate(zip(topic.partitions, topic.states, strict=True)):
                family.add_metric([topic.name, str(number)], value(partition, state))
            if samples_max and len(family.samples) >= samples_max:
                yield family
                family = GaugeMetricFamily(name, "Text.", labels=["topic", "partition"])
        yield family


def _whole(topics: list[_Topic]) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([generate_latest(_Collected(lambda: _families(topics)))])


def _by_family(topics: list[_Topic], samples_max: int | None = None) -> Callable[[], Iterator[bytes]]:
    def steps() -> Iterator[bytes]:
        before = ""
        for family in _families(topics, samples_max):
            text = generate_latest(_Collected(lambda family=family: iter([family])))  # type: ignore[misc]
            if family.name == before:
                text = text.split(b"\n", 2)[2]  # HELP and TYPE appear once, before the first sample
            before = family.name
            yield text

    return steps


# --- measuring ------------------------------------------------------------------------------------------------------


class _Round(NamedTuple):
    cpu_ms: float
    longest_step_ms: float


def _measure(steps: Callable[[], Iterator[bytes]]) -> _Round:
    longest_s, sent = 0.0, deque[bytes](maxlen=1)
    began_s = last_s = time.thread_time()
    for piece in steps():
        sent.append(piece)
        now_s = time.thread_time()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    return _Round(1000 * (time.thread_time() - began_s), 1000 * longest_s)


def _values(page: bytes) -> dict[tuple[str, str], float]:
    return {
        (sample.name, str(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def run(quick: bool = False) -> list[Row]:
    rows = []
    for partitions in (1_000,) if quick else (1_000, 10_000):
        topics = _topics(partitions)
        ours = _ours(topics)
        peers = {
            "prometheus-client": _whole(topics),
            "prometheus-client by family": _by_family(topics),
            f"prometheus-client by {_SAMPLES_PER_STEP} samples": _by_family(topics, _SAMPLES_PER_STEP),
        }
        expected = _values(b"".join(ours()))
        for name, steps in peers.items():
            assert _values(b"".join(steps())) == expected, f"{name} renders other values"
        rounds: dict[str, list[_Round]] = {name: [] for name in ("ours", *peers)}
        for _ in range(2 if quick else 9):
            for name, steps in {"ours": ours, **peers}.items():
                rounds[name].append(_measure(steps))
        for name in peers:
            for measure in _Round._fields:
                label = f"{measure.removesuffix('_ms').replace('_', ' ')}, {partitions} partitions"
                mine, theirs = ([getattr(each, measure) for each in rounds[who]] for who in ("ours", name))
                rows.append(row(label, figure(mine), "ms", peer=name, peer_value=figure(theirs)))
    return [*rows, _observing(quick)]


def _observing(quick: bool) -> Row:
    """Return what counting one request costs; it happens for every request, a page is rendered every few seconds."""
    calls = 10_000 if quick else 200_000
    ours, theirs = Histogram(), prometheus_client.Histogram("h", "Text.", registry=None, buckets=BOUNDS_S)
    best: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(5):
        best["ours"].append(timeit.timeit(lambda: ours.observe(0.003), timer=time.thread_time, number=calls))
        best["theirs"].append(timeit.timeit(lambda: theirs.observe(0.003), timer=time.thread_time, number=calls))
    mine_us, theirs_us = (min(rounds) / calls * 1e6 for rounds in best.values())
    return row("observe a duration", mine_us, "µs", peer="prometheus-client", peer_value=theirs_us)


_IMPORT = """
import asyncio, resource, time
import flymq.server.assemble
def resident_kb():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() // 1024
before_kb, began_s = resident_kb(), time.process_time()
import prometheus_client
print(1000 * (time.process_time() - began_s), resident_kb() - before_kb)
"""


def import_cost() -> str:
    """Return what importing prometheus-client adds to what a broker has imported already."""
    outputs = [subprocess.check_output([sys.executable, "-c", _IMPORT], text=True).split() for _ in range(5)]
    cpu_ms, memory_kb = (min(float(output[column]) for output in outputs) for column in (0, 1))
    return f"import prometheus_client: {cpu_ms:.0f} ms, {memory_kb:.0f} KB"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="one size and fewer rounds")
    print(show(run(arguments.parse_args().quick)))
    print(import_cost())


if __name__ == "__main__":
    main()
