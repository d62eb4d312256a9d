"""`flymq server`: run a broker, or several, in the foreground."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from flymq import __version__
from flymq.cli.addresses import address_of, program, server_option
from flymq.cli.codec_warning import CODEC_ADVICE, CODEC_IS_SLOW
from flymq.cli.options import Noun, parse_assignment
from flymq.cli.output import note
from flymq.host.child_process import end_with_parent
from flymq.record.codec import COMPILED
from flymq.server.assemble import Server
from flymq.server.config import Config
from flymq.server.main import run, run_supervisor
from flymq.server.settings import load_config
from flymq.server.supervisor import END_WITH_SUPERVISOR_S, Ready, SupervisedBroker

BROKERS_MAX = 64
START_BROKER = (sys.executable, "-m", "flymq", "server", "start", "--supervised")


@click.group(cls=Noun)
def server() -> None:
    """Run a broker."""


@server.command()
@click.option("--dev", is_flag=True, default=None, help="Development mode: topics are created on first use.")
@click.option("--data-dir", metavar="DIR", help="Data directory.  [default: flymq-data]")
@click.option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 for all.  [default: 127.0.0.1]")
@click.option("--port", type=int, metavar="N", help="Port to listen on; 0 for any free one.  [default: 9092]")
@click.option("--id", "broker_id", type=int, metavar="N", help="Id of the broker in its cluster.  [default: 0]")
@click.option("--etcd", metavar="URL[,URL]", help="Join the cluster whose metadata is in this etcd; needs --id.")
@click.option("--rack", metavar="NAME", help="Rack or zone of the broker: replicas are placed in different ones.")
@click.option(
    "--brokers",
    type=click.IntRange(1, BROKERS_MAX),
    metavar="N",
    help="Run N brokers, one per core, that form a cluster. They listen on N ports from --port on.",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings file, TOML.")
@click.option(
    "--set", "assignments", multiple=True, metavar="SECTION.NAME=VALUE", help="Any other setting; repeatable."
)
@click.option("--supervised", is_flag=True, hidden=True)
@click.pass_context
def start(  # noqa: PLR0913  # one for each option
    context: click.Context,
    dev: bool | None,
    data_dir: str | None,
    host: str | None,
    port: int | None,
    broker_id: int | None,
    etcd: str | None,
    rack: str | None,
    brokers: int | None,
    config: Path | None,
    assignments: tuple[str, ...],
    supervised: bool,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    Prints a line to stdout when it is ready; the log goes to stderr. All settings are in docs/reference/settings.md.
    """
    if supervised:
        end_with_parent(END_WITH_SUPERVISOR_S)
    flags: dict[str, Any] = dict(parse_assignment(text) for text in assignments)
    given = {
        "broker.dev": dev,
        "broker.data_dir": data_dir,
        "broker.id": broker_id,
        "broker.rack": rack,
        "cluster.etcd": etcd,
        "listener.host": host,
        "listener.port": port,
    }
    flags.update((name, value) for name, value in given.items() if value is not None)
    settings = load_config(file=config, environ=os.environ, flags=flags)
    if not COMPILED and not supervised:
        note(f"{CODEC_IS_SLOW}\nTry: {CODEC_ADVICE}")
    if brokers is not None:
        command = start_command(flags, config)
        context.exit(run_supervisor(settings, command, brokers, announce_broker(settings)))
    context.exit(run(settings, _tell_supervisor if supervised else _announce))


def start_command(flags: dict[str, Any], config: Path | None = None) -> list[str]:
    """Return the command that starts a broker with these settings under a supervisor."""
    return [
        *START_BROKER,
        *([] if config is None else [f"--config={config}"]),
        *(f"--set={name}={value}" for name, value in flags.items()),
    ]


def _tell_supervisor(server: Server) -> None:
    click.echo(msgspec.json.encode(Ready(server.port, server.http_port)))
    sys.stdout.flush()


def _announce(server: Server) -> None:
    listener = server.config.listener
    click.echo(
        f"FlyMQ {__version__} listens on {address_of(listener.host, server.port)}, "
        f"data in {server.config.broker.data_dir}"
    )
    if server.config.broker.dev:
        command = f"{program()}{server_option(listener.host, server.port)}"
        click.echo(f"  {command} produce greetings 'hello, world'\n  {command} consume greetings --follow")
    sys.stdout.flush()


def announce_broker(config: Config) -> Callable[[SupervisedBroker], None]:
    """Return what prints a line when a broker under a supervisor is ready."""

    def announce(broker: SupervisedBroker) -> None:
        address = address_of(config.listener.host, broker.port)
        click.echo(f"broker {broker.broker_id} listens on {address}, data in {broker.data_dir}")
        sys.stdout.flush()

    return announce
