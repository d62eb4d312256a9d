"""Write docs/reference/cli.md from the commands, so that the page cannot lag behind.

    python -m flymq.cli.reference            write the page
    python -m flymq.cli.reference --check    exit 1 if the page is not up to date

Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from flymq.cli.app import app
from flymq.cli.exit_codes import MEANINGS
from flymq.cli.options import ConnectionOption

PAGE = Path("docs/reference/cli.md")

_INTRODUCTION = """\
# The command line

<!-- Written by `python -m flymq.cli.reference`; change the commands in src/flymq/cli instead. -->

Data goes to stdout, messages to stderr. The options of the connection may stand before or after a command, and so may
`-o`; every command below that talks to a broker takes them. A failure is two lines on stderr, what is wrong and what to
try, and one of these exit codes:

| Exit code | Meaning |
|---|---|
"""


def render() -> str:
    """Return the whole page."""
    root = click.Context(app, info_name="flymq")
    codes = [f"| {code.value} | {meaning} |\n" for code, meaning in MEANINGS.items()]
    shared = [param for param in app.params if isinstance(param, click.Option) and param.name != "version"]
    parts = [_INTRODUCTION + "".join(codes), "## Options of all commands\n\n" + _table(root, shared)]
    parts += [_section(context) for context in _leaves(root)]
    return "\n".join(parts)


def _leaves(context: click.Context) -> Iterator[click.Context]:
    """Yield every command that does something, in the order of the help."""
    command = context.command
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from _leaves(click.Context(child, info_name=name, parent=context))


def _section(context: click.Context) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "")
    own = [
        param
        for param in command.params
        if isinstance(param, click.Option) and not isinstance(param, ConnectionOption) and _is_own(param)
    ]
    table = f"\n{_table(context, own)}" if own else ""
    return f"## `{context.command_path}`\n\n```\n{usage}\n```\n\n{_as_markdown(text)}\n{table}"


def _is_own(option: click.Option) -> bool:
    return option.name != "output" or option.expose_value


def _as_markdown(text: str) -> str:
    """Return a help text with its paragraphs of fixed lines (click marks them with \\b) as blocks of code."""
    return "\n\n".join(
        "```\n" + paragraph.removeprefix("\b\n") + "\n```" if paragraph.startswith("\b") else paragraph
        for paragraph in text.split("\n\n")
    )


def _table(context: click.Context, options: Iterable[click.Option]) -> str:
    rows = ["| Option | Meaning |", "|---|---|"]
    for option in options:
        record = option.get_help_record(context)
        assert record is not None
        name, text = (part.replace("|", "\\|") for part in record)
        rows.append(f"| `{name}` | {' '.join(text.split())} |")
    return "\n".join(rows) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m flymq.cli.reference", description="Write cli.md.")
    parser.add_argument("--check", action="store_true", help="only tell whether the page is up to date")
    page = render()
    if not parser.parse_args(arguments).check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"{PAGE} is not up to date.\nTry: python -m flymq.cli.reference", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
