"""`flymq demo`: broker, orders, Spark aggregation and result, end to end. It exits by itself and cleans up."""

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
@click.option(
    "--seconds",
    type=click.IntRange(min=1),
    default=15,
    show_default=True,
    help="How long to run after the first result.",
)
def demo(seconds: int) -> None:
    """Run an end-to-end demo: a broker, a stream of orders, and a Spark aggregation.

    Everything is in a temporary folder, which is removed at the end.
    """
    from flymq.spark.session import spark_version
    from flymq.testing import running_broker

    begun_s = time.monotonic()
    click.echo(f"Spark {spark_version()} and a broker, in a temporary folder; the demo exits by itself.\n")
    with running_broker() as broker, FlyMQClient(broker.address) as client:
        _step(1, "Broker:", f"listening on {broker.address}")
        for topic in (TOPIC, RESULT):
            client.create_topic(topic, 2)
        with feeding(client) as feed:
            _step(2, "Producer:", f"writes the orders of a shop to the topic {TOPIC}, about 600 per second")
            _step(3, "Pipeline:", f"a Spark job aggregates them, exactly once, into the topic {RESULT}:")
            click.echo(f"     {_COMMAND}")
            tally = _aggregate(broker.address, lambda stopping: _watch(client, feed, stopping, seconds))
        _finish(feed.written, tally.orders, time.monotonic() - begun_s)


def _step(number: int, name: str, text: str) -> None:
    click.echo(f"{number}  {click.style(name, bold=True)} {text}")


def _aggregate(server: str, watch: Callable[[threading.Event], Tally]) -> Tally:
    """Run the pipeline while `watch` consumes its result, until `watch` returns.

    The pipeline runs in the main thread: in another one Spark would find neither the session nor its format "flymq".
    """
    from flymq.spark.jobs.aggregate import AggregateJob
    from flymq.spark.jobs.connection import Connection
    from flymq.spark.jobs.execution.pipeline_state import Pipelines
    from flymq.spark.jobs.execution.runner import run_in_session
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
    """Draw the result as it changes; after some time stop the producer, and wait until every order is counted."""
    tally = Tally()
    screen = _Screen()
    deadline_s = time.monotonic() + _PATIENCE_S
    end_s: float | None = None
    with client.consumer(RESULT, value_deserializer=from_json, start="earliest") as consumer:
        while not stopping.is_set():
            if end_s is not None and time.monotonic() > end_s and _is_all_counted(feed, tally):
                break
            if time.monotonic() > deadline_s:
                raise RequestTimedOut(
                    "the demo timed out waiting for the result", hint="flymq doctor checks this machine."
                )
            if _read(consumer, tally):
                if end_s is None:
                    _step(4, "Consumer:", f"reads the result from the topic {RESULT}:\n")
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
    """A chart that is redrawn in place on a terminal; otherwise only the last one is printed."""

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
    verdict = "none lost, none counted twice" if written == counted else "these numbers should be equal"
    click.echo(f"\n{written:,} orders written, {counted:,} counted: {verdict}. Took {took_s:.0f} s.")
    click.echo("\nNext: start your own broker with flymq server start --dev, and see docs/how-to/sql.md")
