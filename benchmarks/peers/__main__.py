"""`python -m benchmarks.peers install` fetches the peers into the cache folder; `list` says which can run here."""

from __future__ import annotations

import argparse
import sys

from benchmarks.peers.cache import VARIABLE, cache
from benchmarks.peers.catalogue import DRIVERS
from benchmarks.peers.contender import Driver


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("action", choices=("install", "list"))
    chosen = parser.parse_args(arguments)
    print(f"The cache folder is {cache()}; {VARIABLE} sets another one.")
    if chosen.action == "install":
        failed = [driver for driver in DRIVERS if driver.missing() and not _install(driver)]
        return 1 if failed else 0
    for driver in DRIVERS:
        reason = driver.missing()
        print(f"{driver.name:16} {f'left out: {reason}' if reason else driver.version()}")
    return 0


def _install(driver: Driver) -> bool:
    print(f"Fetching {driver.name} …", flush=True)
    try:
        driver.install()
    except (OSError, RuntimeError) as error:
        print(f"{driver.name} cannot be fetched here, and will be left out: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
