"""`python -m benchmarks.cluster`: the suite `cluster` of the benchmarks, or parts of it; `--help` lists the options."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from benchmarks import machine
from benchmarks.cluster.suite import PARTS, run
from benchmarks.results import Run, save
from benchmarks.row import show


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test, not for published figures")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this; can be repeated")
    parser.add_argument("--etcd", metavar="URL", help="run FlyMQ's brokers on this etcd, not on a served store")
    parser.add_argument("--without-kafka", action="store_true", help="measure FlyMQ alone")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    chosen = parser.parse_args(arguments)
    described = machine.describe()
    print(machine.in_a_line(described), file=sys.stderr)
    rows = run(chosen.quick, with_kafka=not chosen.without_kafka, etcd=chosen.etcd, only=chosen.only or ())
    print(show(rows))
    if chosen.json:
        save(chosen.json, Run(machine=described, quick=chosen.quick, results={"cluster": rows}))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the brokers it started are stopped too
    sys.exit(main())
