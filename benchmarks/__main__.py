"""Run the benchmarks: `make bench`, or `python -m benchmarks`; `--help` lists the options."""

from __future__ import annotations

import argparse
import gc
import importlib
import signal
import sys
import time
import traceback
from pathlib import Path

from benchmarks import machine
from benchmarks.comparison import compare
from benchmarks.peers.catalogue import versions
from benchmarks.results import Run, load, save
from benchmarks.row import Row, show

SUITES = {
    "record_codec": "benchmarks.record_codec",
    "record_check": "benchmarks.record_check",
    "log": "benchmarks.log",
    "broker": "benchmarks.broker",
    "throughput": "benchmarks.workloads.throughput",
    "latency": "benchmarks.workloads.latency",
    "breadth": "benchmarks.workloads.breadth",
    "durability": "benchmarks.workloads.durability",
    "encodings": "benchmarks.workloads.encodings",
    "catch_up": "benchmarks.workloads.catch_up",
    "groups": "benchmarks.workloads.groups",
    "coordination": "benchmarks.coordination",
    "metadata": "benchmarks.metadata",
    "sdk": "benchmarks.sdk",
    "kafka": "benchmarks.kafka",
    "rest": "benchmarks.rest",
    "metrics_page": "benchmarks.metrics_page",
    "stalls": "benchmarks.stalls",
    "cluster": "benchmarks.cluster.suite",
    "spark": "benchmarks.spark",
    "spark_jobs": "benchmarks.spark_jobs",
    "peers": "benchmarks.peers.suite",
    "programs": "benchmarks.peers.programs",
}
"""The order of a whole run, and of the report."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds: for a smoke test, not for published figures"
    )
    parser.add_argument("--only", choices=SUITES, action="append", help="run only this suite; can be repeated")
    parser.add_argument("--without", choices=SUITES, action="append", default=[], help="skip this suite")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--keep", action="store_true", help="keep the results of other suites in that file")
    parser.add_argument("--compare", type=Path, metavar="OLD", help="also show the ratio to an earlier run")
    chosen = parser.parse_args(arguments)
    run = Run(machine={**machine.describe(), **versions()}, quick=chosen.quick, results={})
    print(machine.in_a_line(run["machine"]), file=sys.stderr)
    if chosen.keep and chosen.json.exists():
        run["results"] = load(chosen.json)["results"]
    failed = []
    for suite in [name for name in chosen.only or SUITES if name not in chosen.without]:
        started = time.monotonic()
        try:
            rows: list[Row] = importlib.import_module(SUITES[suite]).run(quick=chosen.quick)
        except Exception:  # any error: the other suites of a long run are still useful
            traceback.print_exc()
            failed.append(suite)
            continue
        gc.collect()  # close the files of a broker that ran in this process
        run["results"][suite] = rows
        print(f"\n{suite} ({time.monotonic() - started:.0f} s)\n{show(rows)}", flush=True)
        if chosen.json:  # after each suite: an interrupted run keeps its results
            save(chosen.json, run)
    if chosen.compare:
        print(f"\nbeside {chosen.compare}\n{compare(load(chosen.compare), run)}")
    if failed:
        print(f"\nThese failed: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the servers it started are stopped too
    sys.exit(main())
