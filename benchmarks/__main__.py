"""Run the benchmarks: `make bench`, or `python -m benchmarks [--quick] [--only NAME] [--json FILE]`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path

from benchmarks.row import Row, show

SUITES = ("record_codec", "log", "broker", "sdk", "coordination", "kafka", "rest")


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer rounds: for a look, not for figures to quote")
    arguments.add_argument("--only", choices=SUITES, action="append", help="run only this suite")
    arguments.add_argument("--json", type=Path, help="also write the rows here")
    chosen = arguments.parse_args()
    print(_machine(), file=sys.stderr)
    results: dict[str, list[Row]] = {}
    for suite in chosen.only or SUITES:
        started = time.monotonic()
        rows = importlib.import_module(f"benchmarks.{suite}").run(quick=chosen.quick)
        results[suite] = rows
        print(f"\n{suite} ({time.monotonic() - started:.0f} s)\n{show(rows)}", flush=True)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps({"machine": _machine(), "results": results}, indent=2))


def _machine() -> str:
    return f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
