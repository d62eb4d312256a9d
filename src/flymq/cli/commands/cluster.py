"""`flymq cluster`: several brokers that share topics."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from flymq.cli.addresses import program, server_option
from flymq.cli.commands.cluster_adopt import adopt
from flymq.cli.commands.cluster_status import status
from flymq.cli.commands.server import BROKERS_MAX, announce_broker, start_command
from flymq.cli.options import Noun, parse_assignment
from flymq.server.main import run_supervisor
from flymq.server.settings import load_config
from flymq.server.supervisor import SupervisedBroker

_REPLICAS = 3


@click.group(cls=Noun)
def cluster() -> None:
    """Run a cluster of brokers, or show the state of one."""


cluster.add_command(status)
cluster.add_command(adopt)


@cluster.command()
@click.option(
    "--brokers",
    type=click.IntRange(1, BROKERS_MAX),
    default=3,
    show_default=True,
    metavar="N",
    help="Number of brokers.",
)
@click.option("--data-dir", metavar="DIR", help="Data directory.  [default: a temporary one, removed at the end]")
@click.option("--port", type=int, default=9092, show_default=True, metavar="N", help="First port; 0 for any free ones.")
@click.option(
    "--set", "assignments", multiple=True, metavar="SECTION.NAME=VALUE", help="Any setting of the brokers; repeatable."
)
@click.pass_context
def dev(context: click.Context, brokers: int, data_dir: str | None, port: int, assignments: tuple[str, ...]) -> None:
    """Run a cluster on this machine for development, until Ctrl-C.

    Prints a line to stdout for each broker that is ready, then how to use them; warnings go to stderr. Topics are
    created on first use, with a replica on each of up to three brokers. Nothing else has to be installed.
    """
    with _directory(data_dir) as directory:
        flags: dict[str, Any] = {
            "broker.dev": True,
            "log.level": "warning",
            "topics.default_replication_factor": min(_REPLICAS, brokers),
            **dict(parse_assignment(text) for text in assignments),
            "broker.data_dir": directory,
            "listener.port": port,
        }
        config = load_config(environ=os.environ, flags=flags)
        code = run_supervisor(config, start_command(flags), brokers, announce_broker(config), _explain)
    context.exit(code)


@contextmanager
def _directory(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="flymq-") as scratch:
        yield scratch


def _explain(brokers: list[SupervisedBroker]) -> None:
    command = f"{program()}{server_option('localhost', brokers[0].port)}"
    click.echo(f"  {command} produce greetings 'hello, world'\n  {command} consume greetings --follow")
    sys.stdout.flush()
