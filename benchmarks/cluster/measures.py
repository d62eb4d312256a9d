"""What is measured of a running cluster, FlyMQ's or Kafka's: the same steps for both."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from benchmarks.cluster.members import Member, Running
from benchmarks.cluster.producers import SingleProducer
from benchmarks.cluster.topics import ALL, LEADER, Topics, until
from benchmarks.deliveries import Latency, latency
from benchmarks.figures import Schedule
from benchmarks.load import drive
from benchmarks.measurement import Load
from benchmarks.native import Shape, shape

_SPIN_S = 0.0003
_SEND_EVERY_S = 0.005
_STEADY_S = 3.0
_GIVE_UP_S = 60.0
_BATCHES = shape(100, 16 << 10)
_SINGLE = shape(100, 1)
_MB = 1 << 20
_LIMITED = {"retention.bytes": str(1 << 30), "segment.bytes": str(64 * _MB)}


class Costs(NamedTuple):
    """CPU seconds of two loads of the same size."""

    more: float
    less: float

    @property
    def ratio(self) -> float:
        return self.more / self.less


def warm_up(cluster: Running, cpu_s: float) -> None:
    """Load the cluster until it has used so much CPU time: a JVM compiles what it runs often."""
    started_s, topics = cluster.cpu_s, Topics(cluster)
    while cluster.cpu_s - started_s < cpu_s:
        with topics.topic(12, replicas=3, settings=_LIMITED) as topic:
            drive(topics.writers(topic, range(12), _BATCHES, 400, acks=ALL))  # whether all is accepted does not matter


# --- latency


def latency_at(cluster: Running, producer: SingleProducer, *, partitions: int, count: int, rate: int) -> Latency:
    """Send records on time, in turns to the partitions; return how long after its time each was acknowledged."""
    with Topics(cluster).topic(partitions, replicas=3) as topic:
        _latencies(producer, topic, partitions, max(50, rate // 4), rate)  # connections and leaders are known now
        return latency(_latencies(producer, topic, partitions, count, rate))


def _latencies(producer: SingleProducer, topic: str, partitions: int, count: int, rate: int) -> list[float]:
    schedule = Schedule(time.perf_counter() + 0.01, rate)
    found: list[float] = []

    def send(number: int) -> None:
        due_s = schedule.due_s(number)
        producer.send(topic, number % partitions, lambda: found.append(time.perf_counter() - due_s))

    sent = 0
    while len(found) < count:
        now_s = time.perf_counter()
        while sent < count and schedule.due_s(sent) <= now_s:
            send(sent)
            sent += 1
        next_s = schedule.due_s(sent) if sent < count else now_s + 0.01
        producer.wait(max(0.0, next_s - now_s - _SPIN_S))
    return sorted(found)


# --- throughput


def batched(cluster: Running, *, partitions: int, batches: int, replicas: int = 3) -> Load:
    """Produce batches of 16 KB to all partitions at once; acks=all if there are followers."""
    topics = Topics(cluster)
    with topics.topic(partitions, replicas=replicas, settings=_LIMITED) as topic:
        acks = ALL if replicas > 1 else LEADER
        return _load(cluster, topics, topic, range(partitions), _BATCHES, batches, acks)


def _load(
    cluster: Running,
    topics: Topics,
    topic: str,
    partitions: Sequence[int],
    batches: Shape,
    count: int,
    acks: int,
    *,
    cpu_s: Callable[[], float] | None = None,
    inflight: int = 4,
) -> Load:
    before = topics.end_offsets(topic)
    streams = topics.writers(topic, partitions, batches, count, acks=acks, inflight=inflight)
    cpu_of = cpu_s or (lambda: cluster.cpu_s)
    before_s, messages = cpu_of(), count * len(partitions) * batches.records
    elapsed_s = drive(streams)
    load = Load(messages, elapsed_s, cpu_of() - before_s, cluster.resident_bytes)
    topics.check_written(topic, before + messages)
    return load


class Rates(NamedTuple):
    """Messages/s."""

    three: float
    one: float


def one_broker_and_three(cluster: Running, *, batches: int) -> Rates:
    """Load partitions of all brokers, and as many of one, without replicas."""
    topics = Topics(cluster)
    with topics.topic(36, replicas=1, settings=_LIMITED) as topic:
        led = _led(topics.leaders(topic))
        spread = [number for numbers in led.values() for number in numbers[:2]]
        alone = max(led.values(), key=len)[: len(spread)]
        three, one = (_load(cluster, topics, topic, on, _BATCHES, batches, LEADER) for on in (spread, alone))
        return Rates(three.rate, one.rate)


def _led(leaders: Sequence[int]) -> dict[int, list[int]]:
    """Return the partitions of each leader."""
    return {
        broker: [number for number, leader in enumerate(leaders) if leader == broker] for broker in sorted(set(leaders))
    }


# --- what followers cost their leader


def followers_cost(cluster: Running, *, batches: int) -> Costs:
    """Return the CPU time of a leader with two followers (acks=all), and of one with none (acks=1), for batches."""
    topics = Topics(cluster)
    with (
        topics.topic(1, replicas=3, settings=_LIMITED) as replicated,
        topics.topic(1, replicas=1, settings=_LIMITED) as alone,
    ):
        return Costs(
            _leader_cpu_s(cluster, topics, replicated, _BATCHES, batches, ALL),
            _leader_cpu_s(cluster, topics, alone, _BATCHES, batches, LEADER),
        )


def width_cost(cluster: Running, *, partitions: int, messages: int, rounds: int) -> Costs:
    """Return the CPU time of a leader for single messages to one partition: one of many that are followed, or alone."""
    topics = Topics(cluster)

    def cost(count: int) -> float:
        with topics.topics(count, replicas=3) as names:
            return min(
                _leader_cpu_s(cluster, topics, names[0], _SINGLE, messages, ALL, inflight=1) for _ in range(rounds)
            )

    less = cost(1)
    return Costs(cost(partitions * len(cluster.members)), less)


def _leader_cpu_s(
    cluster: Running, topics: Topics, topic: str, batches: Shape, count: int, acks: int, inflight: int = 4
) -> float:
    leader = cluster.members[topics.leaders(topic)[0]].measured
    cpu_s = lambda: leader.cpu_s  # noqa: E731
    return _load(cluster, topics, topic, [0], batches, count, acks, cpu_s=cpu_s, inflight=inflight).cpu_s


# --- faults


class WritePauses:
    """Writes to one partition every 5 ms, in a thread, and knows when acknowledgements came."""

    def __init__(self, producer: SingleProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._acknowledged_s: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> WritePauses:
        self._thread.start()
        until(lambda: len(self._acknowledged_s) > 200, "the first second of writes is acknowledged")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        next_s = time.perf_counter()
        while not self._ended.is_set():
            self._producer.send(self._topic, 0, lambda: self._acknowledged_s.append(time.perf_counter()))
            next_s += _SEND_EVERY_S
            while (left_s := next_s - time.perf_counter()) > 0:
                self._producer.wait(left_s)

    def longest_s(self, fault: Callable[[], None]) -> float:
        """Return the longest time without an acknowledgement after a fault, when writes are steady again."""
        began_s = time.perf_counter()
        fault()
        while True:
            now_s = time.perf_counter()
            times = [began_s, *(at for at in list(self._acknowledged_s) if at > began_s), now_s]
            gaps = [(later - earlier, later) for earlier, later in pairwise(times)]
            steady_since_s = max([began_s, *(later for gap, later in gaps if gap > _STEADY_S / 3)])
            if now_s - max(steady_since_s, began_s + 2) > _STEADY_S:
                return max(gap for gap, _ in gaps)
            if now_s - began_s > _GIVE_UP_S:
                print(f"cluster: writes are not steady again {_GIVE_UP_S:.0f} s after the fault", file=sys.stderr)
                return max(gap for gap, _ in gaps)
            time.sleep(0.1)


def write_pause(cluster: Running, make: Callable[[Running], SingleProducer], fault: str) -> float:
    """Return the longest pause of writes with acks=all when this happens to the leader; afterwards all is as before."""
    topics = Topics(cluster)
    with topics.topic(1, replicas=3) as topic:
        producer = make(cluster)
        try:
            leader = cluster.members[topics.leaders(topic)[0]]
            with WritePauses(producer, topic) as writes:
                longest_s = writes.longest_s(lambda: _FAULTS[fault](leader))
        finally:
            producer.close()
        _repair(leader, fault)
        topics.until_in_sync(topic, 1, 3)
    return longest_s


_FAULTS: dict[str, Callable[[Member], None]] = {
    "kill -9": Member.kill,
    "SIGSTOP": Member.pause,
    "SIGTERM": Member.terminate,
}


def _repair(leader: Member, fault: str) -> None:
    if fault == "SIGSTOP":
        leader.resume()
        return
    leader.process.wait()
    leader.start()


# --- many leaders at once


class LeaderChanges(NamedTuple):
    """How a cluster went through the death of a broker that led many partitions."""

    partitions: int
    first_s: float
    """From the death until the first of its partitions had another leader."""
    rest_s: float
    """From then until all had."""


def leader_changes(cluster: Running, *, partitions: int, before: Callable[[], None]) -> tuple[LeaderChanges, int]:
    """Kill a broker that leads so many partitions. `before` is called just before. Returns also its id."""
    topics, count = Topics(cluster), partitions * len(cluster.members)

    def leaders(names: Sequence[str]) -> list[int]:
        return [leader for name in names for leader in topics.leaders(name)]

    with topics.topics(count, replicas=2, settings={"min.insync.replicas": "1"}) as names:
        led = _led(leaders(names))
        killed = max(led, key=lambda broker: len(led[broker]))
        watched = led[killed]
        before()
        cluster.members[killed].kill()
        killed_s = time.perf_counter()
        first_s = 0.0

        def all_are_led() -> bool:
            nonlocal first_s
            found = leaders(names)
            moved = [found[number] not in (killed, -1) for number in watched]
            if any(moved) and not first_s:
                first_s = time.perf_counter()
            return all(moved)

        until(all_are_led, "all partitions are led again")
        ended_s = time.perf_counter()
        return LeaderChanges(len(watched), first_s - killed_s, ended_s - first_s), killed
