"""Connect to the broker as the connection options say, and ask the user where necessary."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Unpack

import click

from flymq.cli.exit_codes import ExitCode
from flymq.cli.options import connection_given
from flymq.client.settings import ClientSettings
from flymq.client.sync.client import FlyMQClient
from flymq.model.errors import FlyMQError

_COMPLETION_TIMEOUT_MS = 500


def connect(address: str | None = None, **settings: Unpack[ClientSettings]) -> FlyMQClient:
    """Return a client for the connection options, or for another address, with more settings. Use it in `with`."""
    server, connection = connection_settings(click.get_current_context())
    connection.update(settings)
    return FlyMQClient(address or server, **connection)


def connection_settings(context: click.Context) -> tuple[str | None, ClientSettings]:
    """Return the address, if one was given, and the SDK's connection settings."""
    given = connection_given(context)
    server: str | None = given.pop("server", None)
    timeout_ms: int | None = given.pop("timeout", None)
    password_file: Path | None = given.pop("password_file", None)
    settings: ClientSettings = {"client_id": "flymq-cli", **given}  # type: ignore[typeddict-item]
    if timeout_ms is not None:
        settings["request_timeout_ms"] = settings["connect_timeout_ms"] = timeout_ms
    if "username" in given:
        settings["password"] = _password(given["username"], password_file)
    return server, settings


def _password(user: str, file: Path | None) -> str:
    """Read it from its file, or prompt. Never from the command line, which every user of the machine can read."""
    if file is not None:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    if sys.stdin.isatty():
        return getpass(f"Password for {user}: ")
    raise click.UsageError("--user needs --password-file when stdin is not a terminal.")


def complete_topics(context: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics with this prefix, for shell completion. Fails fast and silently."""
    given = connection_given(context)
    if "username" in given and "password_file" not in given:
        return []
    server, settings = connection_settings(context)
    settings["connect_timeout_ms"] = settings["request_timeout_ms"] = _COMPLETION_TIMEOUT_MS
    try:
        with FlyMQClient(server, **settings) as client:
            return [name for name in client.list_topics() if name.startswith(incomplete)]
    except FlyMQError:
        return []


topic_argument = click.argument("topic", shell_complete=complete_topics)


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask for confirmation, unless --yes was given; exit if declined."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This needs --yes when stdin is not a terminal.")
    if not click.confirm(question, err=True):
        raise click.exceptions.Exit(ExitCode.FAILED)


encryption_option = click.option(
    "--encryption-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Encrypt and decrypt values end to end with the key in this file.",
)


def encryption_settings(file: Path | None) -> ClientSettings:
    """Return the SDK's settings for a key file: 32 bytes as hex or base64 text, as returned by generate_key()."""
    return {} if file is None else {"encryption_key": file.read_text(encoding="ascii", errors="replace").strip()}
