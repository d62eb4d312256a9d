"""The rows of a cluster, FlyMQ's beside Kafka's."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.cluster import measures
from benchmarks.cluster.members import Running, flymq_cluster, kafka_cluster
from benchmarks.cluster.producers import Librdkafka, Sdk, SingleProducer
from benchmarks.cluster.topics import Topics
from benchmarks.deliveries import Latency
from benchmarks.figures import figure
from benchmarks.measurement import load_row
from benchmarks.peers.kafka import Kafka
from benchmarks.row import Row, row, show

T = TypeVar("T")
_RATE = 500
_PAUSE_AIMS = {"kill -9": "<= 2 s", "SIGSTOP": "<= 8 s", "SIGTERM": "<= 1 s"}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int
    messages: int
    """Of a round at a fixed rate, or one at a time."""
    batches: int
    """Of 16 KB, to each of 12 partitions."""
    width: int
    """Partitions that a broker leads."""
    changes: int
    """Partitions that change their leader at once."""
    faults: int
    """How often each fault is repeated."""
    warm_cpu_s: float
    """Three JVMs, each of which needs 35 to 40 seconds until it is as fast as it gets."""


FULL = Size(rounds=3, messages=2_500, batches=500, width=500, changes=1_000, faults=2, warm_cpu_s=120.0)
QUICK = Size(rounds=1, messages=100, batches=20, width=10, changes=20, faults=1, warm_cpu_s=0.0)


class Sides(NamedTuple):
    """The figures of both; those of Kafka are missing if it is."""

    ours: list[float]
    theirs: list[float]

    @staticmethod
    def of(rounds: tuple[list[T], list[T]], figure_of: Callable[[T], float]) -> Sides:
        return Sides(*([figure_of(each) for each in side] for side in rounds))


@dataclass(frozen=True, slots=True)
class Pair:
    """FlyMQ's cluster, and Kafka's if it is measured. Their rounds alternate."""

    ours: Running
    kafka: Running | None
    size: Size

    @property
    def peer(self) -> str | None:
        return None if self.kafka is None else self.kafka.name

    def rounds(self, measure: Callable[[Running], T], count: int | None = None) -> tuple[list[T], list[T]]:
        ours: list[T] = []
        theirs: list[T] = []
        for _ in range(count or self.size.rounds):
            ours.append(measure(self.ours))
            if self.kafka is not None:
                theirs.append(measure(self.kafka))
        return ours, theirs

    def row(self, bench: str, unit: str, sides: Sides, target: str = "") -> Row:
        ours, theirs = sides
        beside = figure(theirs) if theirs else None
        return row(bench, figure(ours), unit, peer=self.peer if theirs else None, peer_value=beside, target=target)


def run(
    quick: bool = False, *, with_kafka: bool | None = None, etcd: str | None = None, only: Sequence[str] = ()
) -> list[Row]:
    """Measure everything, or these parts; Kafka too unless it is a quick run."""
    size = QUICK if quick else FULL
    if with_kafka is None:
        with_kafka = not quick
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch:
        folder = Path(scratch)
        with _clusters(
            folder / "shared", size, etcd, with_kafka=not quick if with_kafka is None else with_kafka
        ) as pair:
            for name, part in PARTS.items():
                if not only or name in only:
                    rows += _measured(name, partial(part, pair))
        if not only or LEADER_CHANGES in only:
            rows += _measured("callbacks", partial(_callbacks, folder, size, etcd))
    return rows


def _measured(name: str, part: Callable[[], list[Row]]) -> list[Row]:
    """Show the rows of a part as soon as they are there. One that fails does not take the others with it."""
    started_s = time.monotonic()
    try:
        rows = part()
    except Exception:
        traceback.print_exc()
        rows = []
    print(
        f"\ncluster: {name} ({time.monotonic() - started_s:.0f} s)\n{show(rows) if rows else 'failed'}", file=sys.stderr
    )
    return rows


@contextmanager
def _clusters(folder: Path, size: Size, etcd: str | None, *, with_kafka: bool) -> Iterator[Pair]:
    with ExitStack() as stack:
        for name in ("flymq", "kafka"):
            (folder / name).mkdir(parents=True)
        ours = stack.enter_context(flymq_cluster(folder / "flymq", etcd=etcd))
        kafka: Running | None = None
        if with_kafka and (reason := Kafka().missing()):
            print(f"cluster: Kafka is left out: {reason}", file=sys.stderr)
        elif with_kafka:
            kafka = stack.enter_context(kafka_cluster(folder / "kafka"))
            Topics(kafka).until_all_have_joined()
            measures.warm_up(kafka, size.warm_cpu_s)
        Topics(ours).until_all_have_joined()
        yield Pair(ours, kafka, size)


# --- the parts


def _latency(pair: Pair) -> list[Row]:
    rows = []
    for partitions in (1, 12):
        where = f"acks=all, {_RATE}/s, {partitions} partition{'s'[: partitions > 1]}"
        both = pair.rounds(_latency_with(Librdkafka, partitions, pair.size))
        rows.append(pair.row(f"{where}, p50", "ms", Sides.of(both, lambda each: each.p50_ms), "<= 1 ms"))
        rows.append(pair.row(f"{where}, p99", "ms", Sides.of(both, lambda each: each.p99_ms), "<= 5 ms"))
        own = Pair(pair.ours, None, pair.size).rounds(_latency_with(Sdk, partitions, pair.size))
        rows.append(pair.row(f"{where}, SDK, p50", "ms", Sides.of(own, lambda each: each.p50_ms)))
        rows.append(pair.row(f"{where}, SDK, p99", "ms", Sides.of(own, lambda each: each.p99_ms)))
    return rows


def _latency_with(
    make: Callable[[Running], SingleProducer], partitions: int, size: Size
) -> Callable[[Running], Latency]:
    def measure(cluster: Running) -> Latency:
        producer = make(cluster)
        try:
            return measures.latency_at(cluster, producer, partitions=partitions, count=size.messages, rate=_RATE)
        finally:
            producer.close()

    return measure


def _throughput(pair: Pair) -> list[Row]:
    both = pair.rounds(lambda cluster: measures.batched(cluster, partitions=12, batches=pair.size.batches))
    name = "produce, acks=all, 16 KB, 12 partitions"
    cpu = Sides.of(both, lambda load: load.cpu_s_per_million)
    return [
        load_row(name, both[0], peer=pair.peer, beside=both[1], target="> Kafka"),
        pair.row(f"{name}, all brokers", "CPU s/M", cpu, "< Kafka"),
    ]


def _followers(pair: Pair) -> list[Row]:
    def measure(cluster: Running) -> measures.Costs:
        return measures.followers_cost(cluster, batches=4 * pair.size.batches)

    ratios = Sides.of(pair.rounds(measure), lambda cost: cost.ratio)
    return [pair.row("leader CPU, 16 KB, two followers / none", "×", ratios, "<= 1.8 ×")]


def _width(pair: Pair) -> list[Row]:
    size = pair.size

    def measure(cluster: Running) -> measures.Costs:
        return measures.width_cost(cluster, partitions=size.width, messages=size.messages, rounds=size.rounds)

    both = pair.rounds(measure, 1)
    per_message = Sides.of(both, lambda cost: cost.less / size.messages * 1e6)
    ratios = Sides.of(both, lambda cost: cost.ratio)
    return [
        pair.row("leader CPU a message, one at a time, two followers", "µs", per_message),
        pair.row(f"leader CPU a message, {size.width} followed partitions / 1", "×", ratios, "<= 1.3 ×"),
    ]


def _scaling(pair: Pair) -> list[Row]:
    """The load runs on the same cores: with two, three brokers share them with it, and one broker leaves it one."""
    both = pair.rounds(lambda cluster: measures.one_broker_and_three(cluster, batches=2 * pair.size.batches))
    rates = Sides.of(both, lambda each: each.three)
    ratios = Sides.of(both, lambda each: each.three / each.one)
    return [
        pair.row("produce, no replicas, 16 KB, three brokers", "msgs/s, load on the same cores", rates),
        pair.row("three brokers / one, no replicas, 16 KB", "×", ratios, ">= 1.6 ×"),
    ]


def _pauses(pair: Pair) -> list[Row]:
    rows = []
    alone = Pair(pair.ours, None, pair.size)
    for fault, aim in _PAUSE_AIMS.items():
        what = f"longest write pause, {fault} of the leader"
        both = pair.rounds(partial(measures.write_pause, make=Librdkafka, fault=fault), pair.size.faults)
        rows.append(pair.row(what, "s", Sides(*both), aim))
        own = alone.rounds(partial(measures.write_pause, make=Sdk, fault=fault), pair.size.faults)
        rows.append(pair.row(f"{what}, SDK", "s", Sides(*own), aim))
    return rows


def _leader_changes(pair: Pair) -> list[Row]:
    """The last part: a broker stays dead."""

    def measure(cluster: Running) -> measures.LeaderChanges:
        return measures.leader_changes(cluster, partitions=pair.size.changes, before=lambda: None)[0]

    both = pair.rounds(measure, 1)
    what = f"{both[0][0].partitions} partitions lose their leader"
    return [
        pair.row(f"{what}: the first is led again after", "s", Sides.of(both, lambda each: each.first_s)),
        pair.row(f"{what}: from the first to the last", "s", Sides.of(both, lambda each: each.rest_s), "<= 2 s"),
    ]


def _callbacks(folder: Path, size: Size, etcd: str | None) -> list[Row]:
    """The same with brokers that tell how long the iterations of their event loops are."""
    (folder / "watched").mkdir()
    with flymq_cluster(folder / "watched", etcd=etcd, is_watched=True) as cluster:
        Topics(cluster).until_all_have_joined()

        def forget() -> None:
            for member in cluster.members.values():
                member.take_longest()

        changes, killed = measures.leader_changes(cluster, partitions=size.changes, before=forget)
        others = [member.take_longest() for number, member in cluster.members.items() if number != killed]
    what = f"{changes.partitions} partitions lose their leader: longest iteration of the loop"
    return [
        row(what, max(each.iteration_ms for each in others), "ms", target="<= 50 ms"),
        row(f"{what}, CPU", max(each.iteration_cpu_ms for each in others), "ms"),
    ]


LEADER_CHANGES = "leader_changes"
PARTS: dict[str, Callable[[Pair], list[Row]]] = {
    "latency": _latency,
    "throughput": _throughput,
    "followers": _followers,
    "scaling": _scaling,
    "width": _width,
    "pauses": _pauses,
    LEADER_CHANGES: _leader_changes,
}
