"""Write the report of a run: docs/performance.md with its plots, and one HTML file.

`python -m benchmarks.report benchmarks/results/run.json`, or `make report`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import plots
from benchmarks.html_page import write_html
from benchmarks.machine import in_a_line
from benchmarks.peers.contender import Promise
from benchmarks.results import Run, load
from benchmarks.row import RIGHT, Row, number, table
from benchmarks.standings import Gap, Standing, gaps, standings

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = {
    "peers": ("peers", "FlyMQ beside its peers: produce, CPU time, consume, latency"),
    "throughput": ("sizes", "Throughput by message size, beside servers that only move the bytes"),
    "latency": ("latency", "End-to-end latency by percentile"),
}
"""The plot of a suite: its name and title."""
TITLES = {
    "peers": "Comparison with peers",
    "programs": "Client programs",
    "cluster": "Three brokers beside three of Kafka",
    "throughput": "Throughput by message size",
    "latency": "End-to-end latency at fixed rates",
    "breadth": "Many partitions, clients and readers",
    "durability": "Durability levels",
    "encodings": "Compression and TLS",
    "catch_up": "Catch-up reads from a cold page cache",
    "groups": "Groups and transactions, through the SDK",
    "coordination": "Groups and transactions, on the wire",
    "metadata": "Metadata stores of a cluster",
    "broker": "The broker, compared with minimal asyncio servers",
    "sdk": "The Python SDK, one process",
    "kafka": "Kafka clients",
    "rest": "REST and metrics",
    "metrics_page": "Rendering /metrics/detailed",
    "log": "The log, compared with plain system calls on the same disk",
    "record_codec": "The record codec, compared with aiokafka's compiled one",
    "record_check": "The check of records before an append, compared with an append without",
    "spark": "Spark",
    "spark_jobs": "Pipelines on Spark",
}
_INTRODUCTION = """# Performance

Generated from one run of the benchmarks. The ratios matter most: each row compares FlyMQ with a limit (a minimal
program on the same machine) or a peer, in the same run, with alternating rounds; ± is the distance of the worst round
from the median. Absolute numbers are those of a small shared machine with the load average given below. To repeat them
on yours:

```console
$ make peers     # fetch Kafka, NATS, Redis and RabbitMQ into a cache directory; unavailable ones are skipped
$ make bench     # about ten minutes; ARGS=--quick for a smoke test
$ make report    # this page, its plots, and benchmarks/results/report.html
```

"""
_HOW = """Every system gets the same 100-byte messages over one connection: prepared bytes on a plain socket, 1,200
messages in flight, so that no client library is the bottleneck. FlyMQ and Kafka get batches of 16 KB, as their clients
send them; the others have no batches and get pipelined single messages, which for FlyMQ is a separate row. Latency is
from the time a message was due, at 500 per second, to a waiting consumer; a p50 of many milliseconds means that the
system could not keep up. CPU time is the server's own; the load generator runs on the same machine.

"""


def write(run: Run, docs: Path = DOCS) -> None:
    pictures = plots.draw(run)
    plots.save(pictures, docs / "images")
    parts = [_INTRODUCTION, f"Machine: {in_a_line(run['machine'])}.\n"]
    if run["quick"]:
        parts.append("\n**A quick run: one round each, not for publication.**\n")
    for suite, title in TITLES.items():
        rows = run["results"].get(suite)
        if rows:
            parts.append(f"\n## {title}\n\n")
            name, shown = PICTURES.get(suite, ("", ""))
            if name in pictures:
                parts.append(f"![{shown}](images/performance-{name}.png)\n\n")
            parts.append(_peers(rows) if suite == "peers" else markdown(table(rows), RIGHT))
    (docs / "performance.md").write_text("".join(parts))


def markdown(lines: list[tuple[str, ...]], right: frozenset[str]) -> str:
    headings, *body = lines
    rule = "|".join("---:" if name in right else "---" for name in headings)
    drawn = [f"| {' | '.join(headings)} |", f"|{rule}|"]
    drawn += ["| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in body]
    return "\n".join(drawn) + "\n"


# --- the peers ------------------------------------------------------------------------------------------------------

_COLUMNS = {
    "produce/s": ("produce", "msgs/s"),
    "CPU s/M": ("produce", "CPU s/M"),
    "consume/s": ("consume", "msgs/s"),
    "CPU s/M ": ("consume", "CPU s/M"),
    "p50 ms": ("end to end p50", "ms"),
    "p99 ms": ("end to end p99", "ms"),
    "MB": ("resident", "MB"),
}
_OURS = {Promise.PROCESS: "persistence=disk, acks=leader", Promise.MACHINE: "persistence=fsync, acks=leader"}


def _peers(rows: list[Row]) -> str:
    parts = [_HOW]
    for promise in Promise:
        parts.append(f"### An acknowledged message {promise.value}\n\n")
        lines = [("", *_COLUMNS, "settings"), *(_line(standing, promise) for standing in standings(rows, promise))]
        parts.append(markdown(lines, frozenset(_COLUMNS)) + "\n")
    parts.append("### Where FlyMQ is behind\n\n")
    return "".join(parts) + ("\n".join(_behind(gaps(rows))) or "Nowhere in this run.") + "\n"


def _behind(found: Sequence[Gap]) -> list[str]:
    """Return a line for each measure, the largest gap first, with all peers that are ahead in it."""
    by_measure: dict[tuple[str, str, float], list[str]] = {}
    for gap in found:
        measure = (f"{gap.what}, {gap.promise.value}", gap.unit, gap.ours)
        by_measure.setdefault(measure, []).append(f"{gap.peer} {number(gap.theirs)} ({gap.factor:.1f} ×)")
    return [
        f"- {what}: FlyMQ {number(ours)} {unit}; {', '.join(ahead)}" for (what, unit, ours), ahead in by_measure.items()
    ]


def _line(standing: Standing, promise: Promise) -> tuple[str, ...]:
    ours = standing.name.startswith("FlyMQ")
    values = [number(standing.values.get(measure)) for measure in _COLUMNS.values()]
    return (f"**{standing.name}**" if ours else standing.name, *values, standing.settings or _OURS[promise])


def main(source: Path) -> None:
    run = load(source)
    write(run)
    write_html(run, source.with_name("report.html"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
