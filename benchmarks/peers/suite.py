"""FlyMQ and its peers in alternating rounds: produce, consume and deliver 100-byte messages with the same durability.

All servers of a durability level run at once, and every round measures each of them once, so that noise on the machine
affects all. Each is warmed up first: that determines how many messages make a round of about a second, and lets a JVM
compile its code. The other servers are idle while one is measured.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.deliveries import Latency, deliver, latency
from benchmarks.figures import Figure, figure
from benchmarks.measurement import Load, measure, rates
from benchmarks.peers import flymq
from benchmarks.peers.catalogue import DRIVERS
from benchmarks.peers.contender import Contender, Driver, Promise
from benchmarks.peers.kafka import Kafka
from benchmarks.row import Row, row

PRODUCE = "produce"
SINGLY = "produce, one message a request"
CONSUME = "consume"
P50 = "end to end p50"
P99 = "end to end p99"
RESIDENT = "resident"

_MB = 1 << 20
_MESSAGES_MAX = 600_000
_RATE_PER_S = 500


class Budget(NamedTuple):
    """How much of a run is spent on what."""

    rounds: int
    warm_up_s: float
    round_s: float
    deliveries: int


FULL = Budget(rounds=3, warm_up_s=2.5, round_s=0.7, deliveries=500)
QUICK = Budget(rounds=1, warm_up_s=0.0, round_s=0.1, deliveries=50)


@dataclass(slots=True)
class Tally:
    """What one contender did in all rounds."""

    contender: Contender
    messages: int
    produced: list[Load] = field(default_factory=list)
    consumed: list[Load] = field(default_factory=list)
    delivered: list[Latency] = field(default_factory=list)


def run(quick: bool = False, drivers: Sequence[Driver] = DRIVERS) -> list[Row]:
    present: list[Driver] = []
    for driver in drivers:
        if reason := driver.missing():
            print(f"{driver.name} is left out: {reason}", file=sys.stderr)
        else:
            present.append(driver)
    spent = QUICK if quick else FULL
    return [one for promise in Promise for one in _rows(promise, _measure(promise, present, spent))]


def _measure(promise: Promise, drivers: Sequence[Driver], spent: Budget) -> list[Tally]:
    with ExitStack() as stack:
        contenders: list[Contender] = []
        for driver in drivers:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="flymq-bench-"))
            contenders += stack.enter_context(driver.running(promise, Path(folder)))
        tallies = [Tally(contender, _warm_up(contender, spent)) for contender in contenders]
        for _ in range(spent.rounds):
            for tally in tallies:
                _take_turn(tally, spent)
    return tallies


def _warm_up(contender: Contender, spent: Budget) -> int:
    """Use the contender for a while; return how many messages it can take in a round."""
    began_s, messages = time.monotonic(), 1_200
    while True:
        load = _produce_and_consume(contender, messages)[0]
        messages = max(1_200, min(_MESSAGES_MAX, int(load.rate * spent.round_s)))
        if time.monotonic() - began_s >= spent.warm_up_s:
            break
    if spent.warm_up_s:
        _deliver(contender, spent)
    return messages


def _take_turn(tally: Tally, spent: Budget) -> None:
    produced, consumed = _produce_and_consume(tally.contender, tally.messages)
    tally.produced.append(produced)
    tally.consumed.append(consumed)
    tally.delivered.append(_deliver(tally.contender, spent))


def _produce_and_consume(contender: Contender, messages: int) -> tuple[Load, Load]:
    topic = contender.open()
    produced = measure(contender.measured, topic.producers(messages), messages)
    consumed = measure(contender.measured, topic.consumers(messages), messages)
    topic.close()
    return produced, consumed


def _deliver(contender: Contender, spent: Budget) -> Latency:
    topic = contender.open()
    courier = topic.courier()
    times = deliver(courier, spent.deliveries, _RATE_PER_S)
    courier.close()
    topic.close()
    return latency(times)


# --- the table ------------------------------------------------------------------------------------------------------


def _rows(promise: Promise, tallies: Sequence[Tally]) -> list[Row]:
    """Return each peer beside FlyMQ used in the same way: Kafka in its own protocol, the others in ours."""
    by_name = {tally.contender.name: tally for tally in tallies}
    rows: list[Row] = []
    for name, peer in by_name.items():
        if name == Kafka.name:
            rows += _beside(promise, by_name[flymq.AS_KAFKA], peer)
        elif name not in flymq.WAYS:
            rows += _beside(promise, by_name[flymq.BATCHES], peer)
            rows += _one_by_one(promise, by_name[flymq.SINGLE], peer)
    return rows


def _beside(promise: Promise, ours: Tally, peer: Tally) -> list[Row]:
    return [
        _row(promise, PRODUCE, "msgs/s", peer, rates(ours.produced), rates(peer.produced)),
        _row(promise, PRODUCE, "CPU s/M", peer, _costs(ours.produced), _costs(peer.produced)),
        _row(promise, CONSUME, "msgs/s", peer, rates(ours.consumed), rates(peer.consumed)),
        _row(promise, CONSUME, "CPU s/M", peer, _costs(ours.consumed), _costs(peer.consumed)),
        _row(promise, P50, "ms", peer, _latencies(ours, "p50_ms"), _latencies(peer, "p50_ms")),
        _row(promise, P99, "ms", peer, _latencies(ours, "p99_ms"), _latencies(peer, "p99_ms")),
        _row(promise, RESIDENT, "MB", peer, _resident(ours), _resident(peer)),
    ]


def _one_by_one(promise: Promise, ours: Tally, peer: Tally) -> list[Row]:
    """Messages that come one in a request, as these peers take them; readers do not notice the difference."""
    return [
        _row(promise, SINGLY, "msgs/s", peer, rates(ours.produced), rates(peer.produced)),
        _row(promise, SINGLY, "CPU s/M", peer, _costs(ours.produced), _costs(peer.produced)),
    ]


def _row(promise: Promise, what: str, unit: str, peer: Tally, ours: Figure, beside: Figure) -> Row:
    contender = peer.contender
    entry = row(f"{promise.value}: {what}", ours, unit, peer=contender.name, peer_value=beside)
    return Row(**entry, note=contender.settings)


def _costs(loads: Sequence[Load]) -> Figure:
    return figure([load.cpu_s_per_million for load in loads])


def _latencies(tally: Tally, field_name: str) -> Figure:
    return figure([getattr(one, field_name) for one in tally.delivered])


def _resident(tally: Tally) -> Figure:
    return figure([load.resident_bytes / _MB for load in tally.consumed])
