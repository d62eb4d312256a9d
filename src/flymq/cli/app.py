"""`flymq` itself: the list of commands, and their common options."""

from __future__ import annotations

from importlib import import_module

import click
from click.shell_completion import CompletionItem

from flymq import __version__
from flymq.cli.options import Noun, connection_options, output_option

COMMANDS = {
    "server": "Run a broker.",
    "cluster": "Run a cluster of brokers, or show the state of one.",
    "topic": "Create, list, describe, alter and delete topics.",
    "produce": "Produce messages to a topic.",
    "consume": "Consume and print the messages of a topic.",
    "group": "List, describe, reset and delete consumer groups.",
    "sql": "Query topics with SQL.",
    "pipeline": "Run Spark pipelines: your own, and built-in jobs that archive, transform and mirror topics.",
    "backup": "Back up all topics and groups of a broker.",
    "restore": "Restore topics and groups from a backup.",
    "demo": "Run an end-to-end demo: a broker, a stream of orders, and a Spark aggregation.",
    "bench": "Measure throughput and latency of a broker.",
    "repair": "Check and repair a data directory whose broker is stopped.",
    "doctor": "Check this machine and the broker for problems.",
    "completion": "Print the shell completion script.",
}
"""Command NAME is the object NAME of `flymq.cli.commands.NAME`; a test compares these texts with the commands' own."""


class _Nouns(Noun):
    """Imports a command's module only when that command is used."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            command: click.Command = getattr(import_module(f"flymq.cli.commands.{name}"), name)
            return command
        if context.resilient_parsing:  # shell completion: an unknown command has none
            return None
        raise click.exceptions.NoSuchCommand(name, possibilities=COMMANDS, ctx=context)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        commands = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return commands + click.Command.shell_complete(self, context, incomplete)


@click.group(
    cls=_Nouns,
    params=[output_option(), *connection_options(with_environment=True)],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="FlyMQ %(version)s")
def app() -> None:
    """FlyMQ: a distributed message queue.

    \b
    Start a broker for development:     flymq server start --dev
    Produce and consume:                flymq produce greetings hello
                                        flymq consume greetings
    """
