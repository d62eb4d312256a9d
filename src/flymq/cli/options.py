"""Common options: the connection to the broker, and the output format.

They may be given before or after the command, and the later one wins: each stores its value in the context's `meta`,
which a command shares with the root. Nothing here imports the SDK.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_CONNECTION = "flymq.connection"
_OUTPUT = "flymq.output"


class ConnectionOption(click.Option):
    """A connection option; these have their own section in a command's help."""


def connection_options(*, with_environment: bool) -> list[click.Option]:
    """Return the connection options, most of them named like the SDK's settings.

    Only the root reads the environment: else a variable would override an option given before the command.
    """

    def option(names: list[str], text: str, variable: str | None = None, **attributes: Any) -> ConnectionOption:
        if variable and with_environment:
            attributes["envvar"] = variable
            text = f"{text}  [{variable}]"
        attributes.setdefault("callback", _store_setting)
        return ConnectionOption(names, expose_value=False, help=text, **attributes)

    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return [
        option(["--server"], "Broker address; default localhost:9092.", "FLYMQ_BOOTSTRAP", metavar="HOST:PORT"),
        option(["--tls", "tls_enabled"], "Use TLS.", "FLYMQ_TLS", is_flag=True, default=None),
        option(
            ["--ca-file", "tls_ca_file"], "CA certificates to trust, PEM; implies --tls.", "FLYMQ_CA_FILE", type=file
        ),
        option(["--cert-file", "tls_cert_file"], "Client certificate, PEM.", "FLYMQ_CERT_FILE", type=file),
        option(
            ["--key-file", "tls_key_file"], "Private key of the client certificate, PEM.", "FLYMQ_KEY_FILE", type=file
        ),
        option(["--user", "username"], "User name.", "FLYMQ_USER", metavar="NAME"),
        option(["--password-file"], "File with the user's password.", "FLYMQ_PASSWORD_FILE", type=file),
        option(
            ["--timeout"],
            "Request timeout; default 30s.",
            metavar="DURATION",
            callback=_store_duration,
        ),
    ]


def _store_setting(context: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None:
        context.meta.setdefault(_CONNECTION, {})[option.name] = value


def _store_duration(context: click.Context, option: click.Parameter, text: str | None) -> None:
    if text is None:
        return
    from flymq.cli.formats.units import parse_duration_ms

    try:
        _store_setting(context, option, parse_duration_ms(text))
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def connection_given(context: click.Context) -> dict[str, Any]:
    """Return the connection options that were given, by name."""
    return dict(context.meta.get(_CONNECTION, {}))


def output_option() -> click.Option:
    """Return `-o`."""
    choices = click.Choice(["table", "json"])
    text = "Output format.  [default: table]"
    return click.Option(["-o", "--output"], type=choices, expose_value=False, callback=_store_output, help=text)


def _store_output(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_OUTPUT] = value


def wants_json() -> bool:
    return click.get_current_context().meta.get(_OUTPUT) == "json"


acks_option = click.option(
    "--acks",
    type=click.Choice(["none", "leader", "all"]),
    default="leader",
    show_default=True,
    help="Acknowledgement to wait for: none, of the leader, or of all in-sync replicas.",
)

compression_option = click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression of batches.",
)


class _Sectioned(click.Command):
    """A command whose help lists subcommands first and connection options last."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        connection: list[tuple[str, str]] = []
        for param in self.get_params(context):
            if isinstance(param, click.Option) and (line := param.get_help_record(context)) is not None:
                (connection if isinstance(param, ConnectionOption) else own).append(line)
        if isinstance(self, click.Group):
            self.format_commands(context, formatter)
        for title, lines in (("Options", own), ("Connection", connection)):
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


class LocalCommand(_Sectioned):
    """A command that needs no broker."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        if all(param.name != "output" for param in self.params):  # some have their own -o
            self.params.append(output_option())


class BrokerCommand(LocalCommand):
    """A command that connects to a broker."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += connection_options(with_environment=False)


class Noun(_Sectioned, click.Group):
    """A group of subcommands, listed in the order of their definition."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


def parse_assignment(text: str, option: str = "--set") -> tuple[str, str]:
    """Split the NAME=VALUE of an option."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint=f"'{option}'")
    return name, value
