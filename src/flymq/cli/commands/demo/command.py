"""`flymq demo`: broker, feed, Spark and result in one go. It ends by itself and leaves nothing behind."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from flymq.cli.commands.demo.chart import Tally, draw
from flymq.cli.commands.demo.orders import SCHEMA, TOPIC, Feed, feeding
from flymq.cli.spark_session import quiet_session, spark_failure
from flymq.client.serializers import from_json
from flymq.client.sync.client import FlyMQClient
from flymq.client.sync.consumer import Consumer
from flymq.model.errors import RequestTimedOut

RESULT = "revenue"
_COMMAND = (
    f"flymq pipeline aggregate {TOPIC} --to {RESULT} --window 1s --updates \\\n"
    f"       --schema '{SCHEMA}' --by category --sum revenue=amount"
)
_POLL_MS = 500
_PATIENCE_S = 600


@click.command()
@click.option("--seconds", type=click.IntRange(min=1), default=15, show_default=True, help="How long to watch it.")
def demo(seconds: int) -> None:
    """See it all work: a broker, a feed of orders, an aggregation on Spark, and its result.

    Everything happens in a temporary folder, which is removed in the end.
    """
    from flymq.spark.session import spark_version
    from flymq.testing import running_broker

    begun_s = time.monotonic()
    click.echo(f"Spark {spark_version()} and everything else in a temporary folder; this ends by itself.\n")
    with running_broker() as broker, FlyMQClient(broker.address) as client:
        _step(1, "A broker", f"listens on {broker.address}")
        for topic in (TOPIC, RESULT):
            client.create_topic(topic, 2)
        with feeding(client) as feed:
            _step(2, "A feed", f"writes the orders of a shop to the topic {TOPIC}, about 600 a second")
            _step(3, "A pipeline", f"on Spark sums them up, exactly once, into the topic {RESULT}:")
            click.echo(f"     {_COMMAND}")
            tally = _aggregate(broker.address, lambda stopping: _watch(client, feed, stopping, seconds))
        _finish(feed.written, tally.orders, time.monotonic() - begun_s)


def _step(number: int, name: str, text: str) -> None:
    click.echo(f"{number}  {click.style(name, bold=True)} {text}")


def _aggregate(server: str, watch: Callable[[threading.Event], Tally]) -> Tally:
    """Run the pipeline while somebody watches its result, until the watching ends.

    The pipeline has the main thread: in another one Spark would not know the session, nor the format "flymq" with it.
    """
    from flymq.spark.jobs.aggregate import AggregateJob
    from flymq.spark.jobs.connection import Connection
    from flymq.spark.jobs.folder import Pipelines
    from flymq.spark.jobs.running import run_in_session
    from flymq.spark.session import QUICK_START

    job = AggregateJob(
        broker=Connection(server=server),
        topic=TOPIC,
        to=RESULT,
        key="category",
        sums={"revenue": "amount"},
        window_ms=1_000,
        schema=SCHEMA,
        emit="updates",
    )
    stopping = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="flymq-demo-") as state,
        quiet_session("flymq demo", settings=QUICK_START) as spark,
        ThreadPoolExecutor(1) as thread,
    ):
        watching = thread.submit(watch, stopping)
        watching.add_done_callback(lambda _: stopping.set())
        try:
            run_in_session(spark, Pipelines(Path(state)).keep("demo", job), job, stopping)
        except Exception as error:
            raise spark_failure(error) from error
        finally:
            stopping.set()
        return watching.result()


def _watch(client: FlyMQClient, feed: Feed, stopping: threading.Event, seconds: int) -> Tally:
    """Draw the result as it comes; after some time stop the feed, and wait until all of it is counted."""
    tally = Tally()
    screen = _Screen()
    deadline_s = time.monotonic() + _PATIENCE_S
    end_s: float | None = None
    with client.consumer(RESULT, value_deserializer=from_json, start="earliest") as consumer:
        while not stopping.is_set():
            if end_s is not None and time.monotonic() > end_s and _is_all_counted(feed, tally):
                break
            if time.monotonic() > deadline_s:
                raise RequestTimedOut("the result did not come in time", hint="flymq doctor looks at this machine.")
            if _read(consumer, tally):
                if end_s is None:
                    _step(4, "The result", f"read back from the topic {RESULT}:\n")
                    end_s = time.monotonic() + seconds
                screen.show(draw(tally))
    screen.close(draw(tally))
    return tally


def _is_all_counted(feed: Feed, tally: Tally) -> bool:
    feed.stop()
    return tally.orders >= feed.written


def _read(consumer: Consumer, tally: Tally) -> bool:
    records = consumer.poll(_POLL_MS)
    tally.add(record.value for record in records)
    return bool(records)


class _Screen:
    """A chart that is drawn over the one before in a terminal; elsewhere only the last one is printed."""

    def __init__(self) -> None:
        self._lines = 0

    def show(self, lines: list[str]) -> None:
        if sys.stdout.isatty():
            back = f"\x1b[{self._lines}A" if self._lines else ""
            click.echo(back + "".join(f"\x1b[2K{line}\n" for line in lines), nl=False)
            self._lines = len(lines)

    def close(self, lines: list[str]) -> None:
        self.show(lines)
        if not sys.stdout.isatty():
            click.echo("\n".join(lines))


def _finish(written: int, counted: int, took_s: float) -> None:
    verdict = "nothing lost, nothing twice" if written == counted else "these should be the same"
    click.echo(f"\n{written:,} orders written, {counted:,} counted: {verdict}. Took {took_s:.0f} s.")
    click.echo("\nNow with a broker of your own: flymq server start --dev, and docs/how-to/sql.md")
