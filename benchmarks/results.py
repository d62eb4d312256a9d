"""The results of a run as JSON, for comparisons, the report and the plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

from benchmarks.row import Row


class Run(TypedDict):
    machine: dict[str, str]
    quick: bool
    results: dict[str, list[Row]]


def save(path: Path, run: Run) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run, indent=1))


def load(path: Path) -> Run:
    run: Run = json.loads(path.read_text())
    return run
