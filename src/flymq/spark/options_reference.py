"""Write docs/reference/spark-options.md from the options, so that the page cannot lag behind.

    python -m flymq.spark.options_reference            write the page
    python -m flymq.spark.options_reference --check    exit 1 if the page is not up to date

Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import Field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from flymq.spark.kafka_options import REFUSED, RENAMED, WITHOUT_EFFECT
from flymq.spark.options import ConnectionOptions, ReadOptions, WriteOptions, option_name

PAGE = Path("docs/reference/spark-options.md")

_INTRODUCTION = """\
# Options of the Spark format "flymq"

<!-- Written by `python -m flymq.spark.options_reference`; change src/flymq/spark/options.py instead. -->

How to use them: [docs/how-to/spark.md](../how-to/spark.md). Case and underscores do not matter: `groupId`, `groupid`
and `group_id` are one. An option that is not here is refused, with the nearest one that is.
"""

_KAFKA = """\
## Names of Spark's Kafka connector

Options that the Kafka connector has for itself have the same name here. Those it hands on to Kafka's client are
understood by their name there; a plain name given beside it wins.

| Kafka's | here |
|---|---|
"""


def render() -> str:
    """Return the whole page."""
    shared = {field.name for field in fields(ConnectionOptions)}
    parts = [
        _INTRODUCTION,
        "## For reading and writing\n",
        *_table(fields(ConnectionOptions)),
        "\n## For reading\n",
        *_table(field for field in fields(ReadOptions) if field.name not in shared),
        "\n## For writing\n",
        *_table(field for field in fields(WriteOptions) if field.name not in shared),
        "\n" + _KAFKA.rstrip(),
        *(f"| `kafka.{theirs}` | `{ours}` |" for theirs, ours in RENAMED.items()),
        "| `kafka.security.protocol` | `tlsEnabled`: true for SSL and SASL_SSL |",
        "| `kafka.sasl.jaas.config` | `username` and `password` |",
        "\nRefused, with the reason: " + ", ".join(f"`kafka.{name}`" for name in REFUSED) + ".",
        "\nTaken without effect: " + ", ".join(f"`{name}`" for name in sorted(WITHOUT_EFFECT)) + ".",
    ]
    return "\n".join(parts) + "\n"


def _table(options: Any) -> Iterator[str]:
    yield "| option | takes | default | |"
    yield "|---|---|---|---|"
    for option in options:
        cells = [f"`{option_name(option.name)}`", _takes(option), _default(option.default), option.metadata["text"]]
        yield f"| {' | '.join(cells)} |"


def _takes(option: Field[Any]) -> str:
    takes: str = option.metadata["takes"]
    if takes:
        return takes
    return "whole number" if "int" in str(option.type) else "text"


def _default(default: Any) -> str:
    if default is None or default == ():
        return ""
    if isinstance(default, Enum):
        return f"`{default.name.lower()}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def main() -> None:
    arguments = argparse.ArgumentParser(description="Write the page of Spark's options.")
    arguments.add_argument("--check", action="store_true", help="exit 1 if the page is not up to date")
    page = render()
    if not arguments.parse_args().check:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        sys.exit(f"{PAGE} is not up to date; run: make docs")


if __name__ == "__main__":
    main()
