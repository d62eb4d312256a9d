"""What a program gets: the same client on FlyMQ and on Kafka, and FlyMQ's SDK beside the other systems' own clients."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks.figures import figure
from benchmarks.measurement import Load, rates, timed
from benchmarks.peers import flymq
from benchmarks.peers.catalogue import DRIVERS
from benchmarks.peers.contender import Contender, Driver, Promise
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.librdkafka import PerformanceTool
from benchmarks.peers.nats import Nats
from benchmarks.peers.python_clients import Confluent, NatsPy, Pika, RedisPy, Sdk
from benchmarks.peers.rabbitmq import RabbitMQ
from benchmarks.peers.redis import Redis
from benchmarks.row import Row, row

_numbers = itertools.count()


class Program(Protocol):
    """Writes messages to a topic that it makes, and reads them back; returns seconds."""

    name: str

    def produce(self, port: int, topic: str, count: int) -> float: ...

    def consume(self, port: int, topic: str, count: int) -> float: ...


class Match(NamedTuple):
    """A program on FlyMQ, and one on a peer, with how many messages a round has."""

    ours: Program
    driver: str
    theirs: Program
    messages: int


MATCHES = (
    Match(PerformanceTool(), Kafka.name, PerformanceTool(), 400_000),
    Match(Confluent(), Kafka.name, Confluent(), 200_000),
    Match(Sdk(), Nats.name, NatsPy(), 50_000),
    Match(Sdk(), Redis.name, RedisPy(), 50_000),
    Match(Sdk(), f"{RabbitMQ.name} stream", Pika(), 30_000),
)


@dataclass(slots=True)
class Sides:
    """What both programs of a match did in all rounds."""

    ours: list[tuple[Load, Load]] = field(default_factory=list)
    theirs: list[tuple[Load, Load]] = field(default_factory=list)


def run(quick: bool = False, drivers: Sequence[Driver] = DRIVERS, matches: Sequence[Match] = MATCHES) -> list[Row]:
    rounds, share = (1, 20) if quick else (3, 1)
    rows: list[Row] = []
    with ExitStack() as stack:
        contenders: dict[str, Contender] = {}
        for driver in drivers:
            if not driver.missing():
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="flymq-bench-"))
                for contender in stack.enter_context(driver.running(Promise.PROCESS, Path(folder))):
                    contenders[contender.name] = contender
        for match in matches:
            reason = _missing(match, contenders)
            if reason:
                print(f"{match.theirs.name} on {match.driver} is left out: {reason}", file=sys.stderr)
                continue
            rows += _play(match, contenders, rounds, match.messages // share // 1_000 * 1_000)
    return rows


def _missing(match: Match, contenders: dict[str, Contender]) -> str | None:
    if match.driver not in contenders:
        return "the peer is not here"
    return match.theirs.missing() if isinstance(match.theirs, PerformanceTool) else None


def _play(match: Match, contenders: dict[str, Contender], rounds: int, messages: int) -> list[Row]:
    sides = Sides()
    for _ in range(rounds + 1):  # the first warms up
        sides.ours.append(_there_and_back(match.ours, contenders[flymq.BATCHES], messages))
        sides.theirs.append(_there_and_back(match.theirs, contenders[match.driver], messages))
    peer = f"{match.driver}, {match.theirs.name}"
    rows = []
    for at, what in enumerate(("produce", "consume")):
        ours, theirs = [pair[at] for pair in sides.ours[1:]], [pair[at] for pair in sides.theirs[1:]]
        costs = [figure([load.cpu_s_per_million for load in loads]) for loads in (ours, theirs)]
        name = f"{what} with {match.ours.name}"
        rows.append(row(name, rates(ours), "msgs/s", peer=peer, peer_value=rates(theirs)))
        rows.append(row(f"{name}, server", costs[0], "CPU s/M", peer=peer, peer_value=costs[1]))
    return rows


def _there_and_back(program: Program, contender: Contender, messages: int) -> tuple[Load, Load]:
    topic = f"program-{next(_numbers)}"
    port = contender.measured.port
    produced = timed(contender.measured, messages, partial(program.produce, port, topic, messages))
    consumed = timed(contender.measured, messages, partial(program.consume, port, topic, messages))
    return produced, consumed
