"""One line of a benchmark's result, and how a table of them is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict


class Row(TypedDict):
    bench: str
    ours: float
    unit: str
    peer: str | None
    peer_value: float | None
    ratio: float | None
    target: str | None


def row(
    bench: str, ours: float, unit: str, *, peer: str | None = None, peer_value: float | None = None, target: str = ""
) -> Row:
    ratio = ours / peer_value if peer_value else None
    return Row(bench=bench, ours=ours, unit=unit, peer=peer, peer_value=peer_value, ratio=ratio, target=target or None)


def cells(entry: Row) -> tuple[str, ...]:
    """Return the row as text, a piece for each column."""
    return (
        entry["bench"],
        _number(entry["ours"]),
        entry["unit"],
        entry["peer"] or "",
        _number(entry["peer_value"]),
        "" if entry["ratio"] is None else f"{entry['ratio']:.2f}",
        entry["target"] or "",
    )


def show(rows: Iterable[Row]) -> str:
    """Return the rows as a table for a terminal."""
    lines = [("what", "FlyMQ", "unit", "beside", "it", "ratio", "aim"), *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(7)]
    right = {1, 4, 5}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f} M"
    if value >= 10_000:
        return f"{value / 1000:.1f} k"
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"
