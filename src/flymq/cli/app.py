"""`flymq` itself: the list of commands, and the options that all of them share."""

from __future__ import annotations

from importlib import import_module

import click
from click.shell_completion import CompletionItem

from flymq import __version__
from flymq.cli.options import Noun, connection_options, output_option

COMMANDS = {
    "server": "Run a broker.",
    "topic": "Create, look at, change and delete topics.",
    "produce": "Write messages to a topic.",
    "consume": "Print the messages of a topic.",
    "group": "Look at consumer groups, move and delete them.",
    "sql": "Ask topics as if they were tables.",
    "pipeline": "Run data pipelines: projects of tables, and ready jobs that archive, transform and mirror topics.",
    "backup": "Keep a whole broker in a folder.",
    "restore": "Bring a broker back from a backup.",
    "demo": "See it all work: a broker, a feed of orders, an aggregation on Spark, and its result.",
    "bench": "Measure how fast a broker is from here.",
    "doctor": "Check this machine and the broker, and say what to do.",
    "completion": "Print the script that completes commands in a shell.",
}
"""Command NAME is the object NAME of `flymq.cli.commands.NAME`; a test compares these texts with the commands' own."""


class _Nouns(Noun):
    """Imports a command's file only when that command is used."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            command: click.Command = getattr(import_module(f"flymq.cli.commands.{name}"), name)
            return command
        if context.resilient_parsing:  # a shell asks for completions: a word that is no command has none
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
    Start a broker to try things out:   flymq server start --dev
    Write and read:                     flymq produce greetings hello
                                        flymq consume greetings
    """
