"""`flymq server`: run a broker in the foreground."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from flymq import __version__
from flymq.cli.codec_warning import CODEC_ADVICE, CODEC_IS_SLOW
from flymq.cli.options import Noun, parse_assignment
from flymq.cli.output import note
from flymq.record.codec import COMPILED
from flymq.server.assemble import Server
from flymq.server.main import run
from flymq.server.settings import load_config

DEFAULT_PORT = 9092


@click.group(cls=Noun)
def server() -> None:
    """Run a broker."""


@server.command()
@click.option("--dev", is_flag=True, default=None, help="Development mode: topics are created on first use.")
@click.option("--data-dir", metavar="DIR", help="Data directory.  [default: flymq-data]")
@click.option("--host", metavar="HOST", help="Address to listen on; 0.0.0.0 for all.  [default: 127.0.0.1]")
@click.option("--port", type=int, metavar="N", help="Port to listen on; 0 for any free one.  [default: 9092]")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings file, TOML.")
@click.option(
    "--set", "assignments", multiple=True, metavar="SECTION.NAME=VALUE", help="Any other setting; repeatable."
)
@click.pass_context
def start(
    context: click.Context,
    dev: bool | None,
    data_dir: str | None,
    host: str | None,
    port: int | None,
    config: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    Prints a line to stdout when it is ready; the log goes to stderr. All settings are in docs/reference/settings.md.
    """
    flags: dict[str, Any] = dict(parse_assignment(text) for text in assignments)
    given = {"broker.dev": dev, "broker.data_dir": data_dir, "listener.host": host, "listener.port": port}
    flags.update((name, value) for name, value in given.items() if value is not None)
    settings = load_config(file=config, environ=os.environ, flags=flags)
    if not COMPILED:
        note(f"{CODEC_IS_SLOW}\nTry: {CODEC_ADVICE}")
    context.exit(run(settings, _announce))


def _announce(server: Server) -> None:
    listener = server.config.listener
    click.echo(
        f"FlyMQ {__version__} listens on {_address(listener.host, server.port)}, "
        f"data in {server.config.broker.data_dir}"
    )
    if server.config.broker.dev:
        command = f"{_program()}{_server_option(listener.host, server.port)}"
        click.echo(f"  {command} produce greetings 'hello, world'\n  {command} consume greetings --follow")
    sys.stdout.flush()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _server_option(host: str, port: int) -> str:
    """Return the --server option that a client on this machine needs, if any."""
    is_local = host in ("", "localhost", "127.0.0.1", "0.0.0.0", "::", "::1")
    if is_local and port == DEFAULT_PORT:
        return ""
    return f" --server {_address('localhost' if is_local else host, port)}"


def _program() -> str:
    """Return how to invoke this program: its name, or its path if it is not on the PATH."""
    path = Path(sys.argv[0])
    if shutil.which("flymq") == str(path.absolute()) or not path.is_file():
        return "flymq"
    shorter = os.path.relpath(path)
    return shorter if len(shorter) < len(str(path)) else str(path)
