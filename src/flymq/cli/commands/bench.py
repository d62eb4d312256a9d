"""`flymq bench`: throughput and latency of a broker, in a few seconds.

It measures what a Python program gets from the SDK, so the result depends as much on this machine and the network as on
the broker. Without a broker it starts one in a separate process: in this one both would compete for one core.

The latencies of single messages are those of an idle broker, one message after another. The latency at a fixed rate is
counted from the time each message was due, not from when it was sent, so that a pause counts for every message it
delayed (no coordinated omission).
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import cycle, islice
from statistics import quantiles
from struct import Struct
from typing import NamedTuple, TypedDict, Unpack

import click

from flymq.cli.connection import connect
from flymq.cli.options import BrokerCommand, acks_option, compression_option, connection_given
from flymq.cli.output import note, show
from flymq.client.settings import DEFAULT_ADDRESS
from flymq.client.sync.client import FlyMQClient
from flymq.client.sync.consumer import Consumer
from flymq.model.delivery import Persistence
from flymq.model.errors import BrokerUnavailable

_BATCH = 10_000
_VALUES = 1_000
_NUMBER = Struct(">Q")

Advance = Callable[[int], None]


class _Options(TypedDict):
    messages: int
    size: int
    round_trips: int
    partitions: int
    rate: int
    persistence: str
    acks: str
    compression: str


class Result(NamedTuple):
    """One row of the table: throughput or latencies."""

    what: str
    messages_per_s: float | None = None
    mb_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


@click.command(cls=BrokerCommand)
@click.option(
    "-n",
    "--messages",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    metavar="N",
    help="Messages for the throughput tests.",
)
@click.option(
    "--size", type=click.IntRange(min=0), default=100, show_default=True, metavar="BYTES", help="Message size."
)
@click.option(
    "--round-trips",
    type=click.IntRange(min=2),
    default=1_000,
    show_default=True,
    metavar="N",
    help="Messages for the latency tests, one at a time.",
)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="N",
    help="Partitions of the topic.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    metavar="N",
    help="Messages per second for the latency at a fixed rate.",
)
@click.option(
    "--persistence",
    type=click.Choice([level.value for level in Persistence]),
    default=Persistence.DISK.value,
    show_default=True,
    help="Durability of the topic.",
)
@acks_option
@compression_option
@click.pass_context
def bench(context: click.Context, **options: Unpack[_Options]) -> None:
    """Measure throughput and latency of a broker.

    Creates a topic for the test and deletes it afterwards. Without a broker at the default address, it starts one.
    """
    server = connection_given(context).get("server")
    broker = nullcontext(server) if server or _is_broker_there() else own_broker()
    with broker as address, connect(address, acks=options["acks"], compression=options["compression"]) as client:
        note(f"Measuring the broker at {address or DEFAULT_ADDRESS} …")
        topic = f"flymq-bench-{random.getrandbits(32):08x}"
        client.create_topic(topic, options["partitions"], settings={"persistence": options["persistence"]})
        try:
            results = _measure(client, topic, options)
        finally:
            client.delete_topic(topic)
    show([result._asdict() for result in results], [_HEADING, *map(_row, results)])


# --- measurements ---------------------------------------------------------------------------------------------------


def _measure(client: FlyMQClient, topic: str, options: _Options) -> list[Result]:
    values = [random.randbytes(options["size"]) for _ in range(_VALUES)]
    count = options["messages"]

    def produce_batches(advance: Advance) -> None:
        supply = cycle(values)
        for begun in range(0, count, _BATCH):
            batch = list(islice(supply, min(_BATCH, count - begun)))
            client.produce_batch(topic, batch)
            advance(len(batch))

    def produce_singly(advance: Advance) -> None:
        send = client.default_producer().send
        for number, value in enumerate(islice(cycle(values), count), start=1):
            send(topic, value)
            if number % _BATCH == 0:
                advance(_BATCH)
        client.flush()

    def consume_batches(advance: Advance) -> None:
        left = count
        for batch in client.consumer(topic).batches():
            left -= len(batch)
            advance(len(batch))
            if left <= 0:
                return

    def consume_singly(advance: Advance) -> None:
        for number, _ in enumerate(islice(client.consumer(topic), count), start=1):
            if number % _BATCH == 0:
                advance(_BATCH)

    return [
        _throughput("produce in batches", options, produce_batches),
        _throughput("produce one by one", options, produce_singly),
        _throughput("consume in batches", options, consume_batches),
        _throughput("consume one by one", options, consume_singly),
        _latency("produce and wait", options, lambda: client.produce(topic, values[0])),
        _latency("produce to consumer", options, _delivery(client, topic, values[0])),
        _steady(client, topic, options),
    ]


def _delivery(client: FlyMQClient, topic: str, value: bytes) -> Callable[[], object]:
    """Return a function that produces a message and waits until a consumer receives it."""
    consumer = client.consumer(topic, start="latest")
    consumer.start()
    records = iter(consumer)

    def deliver() -> object:
        client.default_producer().send(topic, value)
        return next(records)

    return deliver


def _steady(client: FlyMQClient, topic: str, options: _Options) -> Result:
    """Send messages at a fixed rate; measure from the time each was due until a consumer received it."""
    count, rate = options["round_trips"], options["rate"]
    size = max(options["size"], _NUMBER.size)
    consumer = client.consumer(topic, start="latest")
    consumer.start()
    send = client.default_producer().send
    with ThreadPoolExecutor(max_workers=1) as reader, _progress(f"deliver {rate:,}/s", count) as advance:
        arriving = reader.submit(_arrivals, consumer, count)
        begun_s = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, begun_s + number / rate - time.perf_counter()))
            send(topic, _NUMBER.pack(number).ljust(size, b"x"))
            if number % 100 == 99:
                advance(100)
        arrivals = arriving.result()
    taken_ms = [(arrived_s - begun_s - number / rate) * 1000 for number, arrived_s in arrivals]
    return _percentiles(f"deliver {rate:,}/s", taken_ms)


def _arrivals(consumer: Consumer, count: int) -> list[tuple[int, float]]:
    """Receive `count` messages; return the number of each and when it arrived."""
    arrivals = []
    for record in islice(consumer, count):
        arrived_s = time.perf_counter()
        assert record.value is not None
        arrivals.append((_NUMBER.unpack_from(record.value)[0], arrived_s))
    return arrivals


def _throughput(what: str, options: _Options, work: Callable[[Advance], None]) -> Result:
    count = options["messages"]
    with _progress(what, count) as advance:
        begun_s = time.perf_counter()
        work(advance)
        taken_s = time.perf_counter() - begun_s
    return Result(what, messages_per_s=count / taken_s, mb_per_s=count * options["size"] / taken_s / 1e6)


def _latency(what: str, options: _Options, work: Callable[[], object]) -> Result:
    taken_ms: list[float] = []
    count = options["round_trips"]
    with _progress(what, count) as advance:
        for _ in range(count):
            begun_s = time.perf_counter()
            work()
            taken_ms.append((time.perf_counter() - begun_s) * 1000)
            if len(taken_ms) % 100 == 0:
                advance(100)
    return _percentiles(what, taken_ms)


def _percentiles(what: str, taken_ms: list[float]) -> Result:
    percentiles = quantiles(taken_ms, n=100)
    return Result(what, p50_ms=percentiles[49], p99_ms=percentiles[98], max_ms=max(taken_ms))


@contextmanager
def _progress(what: str, count: int) -> Iterator[Advance]:
    """Show a progress bar on a terminal."""
    with click.progressbar(length=count, label=f"{what:20}", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        yield bar.update


_HEADING = ("", "MESSAGES/S", "MB/S", "P50 MS", "P99 MS", "MAX MS")


def _row(result: Result) -> tuple[str, ...]:
    what, messages, mb, *latencies = result
    return (
        what,
        "" if messages is None else f"{messages:,.0f}",
        "" if mb is None else f"{mb:,.1f}",
        *("" if latency is None else f"{latency:.2f}" for latency in latencies),
    )


# --- the broker -----------------------------------------------------------------------------------------------------


def _is_broker_there() -> bool:
    try:
        with connect():
            return True
    except BrokerUnavailable:
        return False


@contextmanager
def own_broker() -> Iterator[str]:
    """Run a broker in a temporary data directory; yield its address."""
    with tempfile.TemporaryDirectory(prefix="flymq-bench-") as scratch:
        start = [sys.executable, "-m", "flymq", "server", "start", "--port", "0", "--data-dir", scratch]
        with subprocess.Popen([*start, "--set", "log.level=error"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            ready = process.stdout.readline()
            try:
                if not ready:
                    raise BrokerUnavailable("the benchmark broker did not start")
                yield ready.partition(" listens on ")[2].partition(",")[0]
            finally:
                process.terminate()
