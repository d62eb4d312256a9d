"""Write docs/performance.md from the JSON of a benchmark run: `python -m benchmarks.report FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.machine import in_a_line
from benchmarks.row import RIGHT, Row, table

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"

_INTRODUCTION = """# Performance

Figures of one run of `make bench`, written by it. They are ratios first: each line measures FlyMQ beside a limit (the
least a program could do on the same machine) or a peer, in the same run, with rounds taking turns. Absolute numbers are
those of a small shared machine; repeat them on yours:

```console
$ make bench ARGS="--json benchmarks/results/run.json"
$ .venv/bin/python -m benchmarks.report benchmarks/results/run.json
```

"""

_TITLES = {
    "record_codec": "The record codec, beside aiokafka's compiled one",
    "log": "The log, beside bare system calls on the same disk",
    "broker": "The broker, beside the least an asyncio server can do",
    "sdk": "The Python SDK, one process",
    "coordination": "Groups and transactions",
    "kafka": "Kafka clients",
    "rest": "REST and metrics",
}


def write(source: Path) -> None:
    run = json.loads(source.read_text())
    parts = [_INTRODUCTION, f"Machine: {in_a_line(run['machine'])}.\n"]
    for suite, rows in run["results"].items():
        parts.append(f"\n## {_TITLES.get(suite, suite)}\n\n{_table(rows)}\n")
    PAGE.write_text("".join(parts))


def _table(rows: list[Row]) -> str:
    headings, *body = table(rows)
    rule = "|".join("---:" if name in RIGHT else "---" for name in headings)
    lines = [f"| {' | '.join(headings)} |", f"|{rule}|"]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in body]
    return "\n".join(lines)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
