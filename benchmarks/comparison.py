"""Compare two runs: what became faster or slower by more than the spread of the rounds."""

from __future__ import annotations

from benchmarks.results import Run
from benchmarks.row import Row, aligned, number

_NOISE = 0.10
"""Differences below a tenth are considered noise."""


def compare(old: Run, new: Run) -> str:
    """Return a table of the rows that both runs have; those that changed are marked."""
    lines: list[tuple[str, ...]] = [("what", "before", "now", "unit", "ratio", "")]
    for suite, rows in new["results"].items():
        before = {_key(entry): entry for entry in old["results"].get(suite, [])}
        lines += [_line(before[_key(entry)], entry) for entry in rows if _key(entry) in before]
    return aligned(lines, frozenset({"before", "now", "ratio"}))


def _key(entry: Row) -> tuple[str, str, str | None]:
    return entry["bench"], entry["unit"], entry["peer"]


def _line(old: Row, new: Row) -> tuple[str, ...]:
    ratio = new["ours"] / old["ours"] if old["ours"] else float("inf")
    noise = max(_NOISE, old.get("spread") or 0.0, new.get("spread") or 0.0)
    mark = "" if abs(ratio - 1) <= noise else "higher" if ratio > 1 else "lower"
    return new["bench"], number(old["ours"]), number(new["ours"]), new["unit"], f"{ratio:.2f}", mark
