"""Scenarios as text: what is done after `>`, and below it what comes of it.

    > join a
    a waits

Lines with `#` and empty lines are for the reader. `python -m tests.unit.coordination.scripts FILE` prints a scenario
with what really happens, to be read before it is believed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from flymq.model.errors import FlyMQError

Command = Callable[[list[str]], Iterator[str]]


def play(text: str, find: Callable[[str], Command]) -> str:
    """Return the scenario with what really happens."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines.append(line)
            name, *words = line[2:].split()
            try:
                lines.extend(find(name)(words))  # what happened before a refusal is kept
            except FlyMQError as error:
                lines.append(f"refused: {error.code}")
        elif line.startswith("#") or not line.strip():
            lines.append(line)
    return "\n".join(lines) + "\n"


def split_options(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Tell plain words from `name=value`."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return [word for word in words if "=" not in word], options


def main() -> None:
    from tests.unit.coordination.test_scenarios import player_for

    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(play(path.read_text(), player_for(path)))


if __name__ == "__main__":
    main()
