"""`python -m benchmarks.peers install` fetches the peers into the cache directory; `list` says which can run here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Protocol

from benchmarks.peers.cache import VARIABLE, cache
from benchmarks.peers.catalogue import DRIVERS
from benchmarks.peers.librdkafka import PerformanceTool


class Installable(Protocol):
    """A system, or a tool to load one with."""

    @property
    def name(self) -> str: ...

    def missing(self) -> str | None: ...

    def install(self) -> None: ...


WANTED: Sequence[Installable] = (*DRIVERS, PerformanceTool())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("action", choices=("install", "list"))
    chosen = parser.parse_args(arguments)
    print(f"The cache directory is {cache()}; {VARIABLE} sets another one.")
    if chosen.action == "install":
        failed = [wanted for wanted in WANTED if wanted.missing() and not _install(wanted)]
        return 1 if failed else 0
    for wanted in WANTED:
        reason = wanted.missing()
        print(f"{wanted.name:20} {f'left out: {reason}' if reason else 'is here'}")
    return 0


def _install(wanted: Installable) -> bool:
    print(f"Fetching {wanted.name} …", flush=True)
    try:
        wanted.install()
    except (OSError, RuntimeError) as error:
        print(f"{wanted.name} cannot be fetched here, and will be left out: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
