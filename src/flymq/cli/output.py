"""Output of commands: tables or JSON on stdout, notes on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from flymq.cli.options import wants_json

_GAP = "   "


def show(data: Any, table: Iterable[Sequence[object]]) -> None:
    """Print `data` as JSON, or the table, whose first row is its heading, depending on -o."""
    if wants_json():
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(aligned(table)))


def aligned(table: Iterable[Sequence[object]]) -> list[str]:
    """Format rows as lines with aligned columns: numbers to the right, everything else to the left.

    The same in a terminal and in a pipe, and never truncated: `awk '{print $1}'` works on it.
    """
    heading, *rows = [[str(cell) for cell in row] for row in table]
    columns = list(zip(heading, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    to_the_right = [_are_numbers(column[1:]) for column in columns]
    return [
        _GAP.join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, to_the_right, strict=True)
        ).rstrip()
        for row in (heading, *rows)
    ]


def _are_numbers(cells: Sequence[str]) -> bool:
    """Whether all cells that are not empty are numbers."""
    known = [cell for cell in cells if cell not in ("", "-")]
    return bool(known) and all(cell.replace(",", "").replace(".", "").isdecimal() for cell in known)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: 1 message, 2 messages."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def note(message: str) -> None:
    """Print a message to stderr."""
    click.echo(message, err=True)
