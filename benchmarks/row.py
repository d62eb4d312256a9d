"""One row of results, and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NotRequired, TypedDict

from benchmarks.figures import Figure


class Row(TypedDict):
    bench: str
    ours: float
    unit: str
    peer: str | None
    peer_value: float | None
    ratio: float | None
    target: str | None
    spread: NotRequired[float | None]
    cpu_s_per_million: NotRequired[float | None]
    resident_mb: NotRequired[float | None]
    note: NotRequired[str]


def row(
    bench: str,
    ours: float | Figure,
    unit: str,
    *,
    peer: str | None = None,
    peer_value: float | Figure | None = None,
    target: str = "",
    cpu_s_per_million: float | None = None,
    resident_mb: float | None = None,
) -> Row:
    value = ours.median if isinstance(ours, Figure) else ours
    beside = peer_value.median if isinstance(peer_value, Figure) else peer_value
    return Row(
        bench=bench,
        ours=value,
        unit=unit,
        peer=peer,
        peer_value=beside,
        ratio=value / beside if beside else None,
        target=target or None,
        spread=ours.spread if isinstance(ours, Figure) and ours.low < ours.high else None,
        cpu_s_per_million=cpu_s_per_million,
        resident_mb=resident_mb,
    )


Cell = Callable[[Row], str]

_ALWAYS: dict[str, Cell] = {
    "what": lambda entry: entry["bench"],
    "FlyMQ": lambda entry: number(entry["ours"]),
    "unit": lambda entry: entry["unit"],
}
_WHERE_KNOWN: dict[str, Cell] = {
    "±": lambda entry: _percent(entry.get("spread")),
    "CPU s/M": lambda entry: number(entry.get("cpu_s_per_million")),
    "MB": lambda entry: number(entry.get("resident_mb")),
    "beside": lambda entry: entry["peer"] or "",
    "it": lambda entry: number(entry["peer_value"]),
    "ratio": lambda entry: "" if entry["ratio"] is None else f"{entry['ratio']:.2f}",
    "aim": lambda entry: entry["target"] or "",
}
RIGHT = frozenset({"FlyMQ", "±", "CPU s/M", "MB", "it", "ratio"})
"""Columns of numbers."""


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the headings and the rows as text, without empty columns."""
    known = {name: cell for name, cell in _WHERE_KNOWN.items() if any(map(cell, rows))}
    columns = {**_ALWAYS, **known}
    return [tuple(columns), *(tuple(cell(entry) for cell in columns.values()) for entry in rows)]


def show(rows: Iterable[Row]) -> str:
    """Return the rows as a table for a terminal."""
    return aligned(table(list(rows)), RIGHT)


def aligned(lines: Sequence[tuple[str, ...]], right: frozenset[str]) -> str:
    """Return lines of text in columns, those of `right` right-aligned. The first line has the headings."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(lines[0], line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def number(value: float | None) -> str:
    """Return a number short enough for a table."""
    if value is None:
        return ""
    if value >= 1_000_000:
        return f"{value / 1_000_000:.2f} M"
    if value >= 10_000:
        return f"{value / 1000:.1f} k"
    if value < 1:
        return f"{value:.3f}"
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"
