"""Pictures of a run: FlyMQ beside its peers, throughput by message size, latency by percentile."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a benchmark has no window

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.peers.contender import Promise
from benchmarks.peers.suite import CONSUME, P99, PRODUCE
from benchmarks.results import Run
from benchmarks.row import Row
from benchmarks.standings import Standing, standings

_OURS, _THEIRS, _LIMIT = "#c2410c", "#94a3b8", "#475569"
_DPI = 90
_MEASURES = (
    ("produce, msgs/s: more is better", (PRODUCE, "msgs/s")),
    ("produce, server CPU s per million: less is better", (PRODUCE, "CPU s/M")),
    ("consume, msgs/s: more is better", (CONSUME, "msgs/s")),
    ("end to end p99 at 500/s, ms: less is better", (P99, "ms")),
)
_SIZES = {"10 B": 10, "100 B": 100, "1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000}


def draw(run: Run) -> dict[str, bytes]:
    """Return the pictures that the run has figures for, as PNG, by name."""
    plots: dict[str, Callable[[Run], Figure | None]] = {
        "peers": draw_peers,
        "sizes": draw_sizes,
        "latency": draw_latency,
    }
    pictures = {}
    for name, plot in plots.items():
        picture = plot(run)
        if picture is not None:
            pictures[name] = _png(picture)
    return pictures


def save(pictures: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, png in pictures.items():
        (folder / f"performance-{name}.png").write_bytes(png)


def _png(picture: Figure) -> bytes:
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=_DPI)
    pyplot.close(picture)
    return buffer.getvalue()


# --- peers ----------------------------------------------------------------------------------------------------------


def draw_peers(run: Run) -> Figure | None:
    """A row of bars for each promise; scales are logarithmic, since the systems differ by orders of magnitude."""
    rows = run["results"].get("peers", [])
    if not rows:
        return None
    picture = pyplot.figure(figsize=(15, 6.4), layout="constrained")
    grid = picture.subplots(len(Promise), len(_MEASURES), squeeze=False)
    for promise, line in zip(Promise, grid, strict=True):
        found = standings(rows, promise)
        for axes, (title, measure) in zip(line, _MEASURES, strict=True):
            _bars(axes, found, measure)
            axes.set_title(title, fontsize=9)
        line[0].set_ylabel(f"an acknowledged message\n{promise.value}", fontsize=10)
        for axes in line[1:]:
            axes.set_yticklabels([])
    picture.supxlabel("logarithmic scales", fontsize=8)
    return picture


def _bars(axes: Axes, found: Sequence[Standing], measure: tuple[str, str]) -> None:
    if not any(standing.values.get(measure) for standing in found):
        axes.set_axis_off()
        return
    names = [standing.name for standing in found][::-1]
    values = [standing.values.get(measure) for standing in found][::-1]
    colours = [_OURS if name.startswith("FlyMQ") else _THEIRS for name in names]
    shown = [value or 0.0 for value in values]
    bars = axes.barh(names, shown, color=colours, height=0.68)
    axes.bar_label(bars, [_short(value) for value in values], padding=3, fontsize=8)
    axes.set_xscale("log")
    known = [value for value in values if value]
    axes.set_xlim(min(known) / 3, max(known) * 6)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _short(value: float | None) -> str:
    if value is None:
        return ""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


# --- sizes ----------------------------------------------------------------------------------------------------------


def draw_sizes(run: Run) -> Figure | None:
    rows = {entry["bench"]: entry for entry in run["results"].get("throughput", [])}
    names = [name for name in _SIZES if f"produce {name}" in rows]
    if len(names) < 3:
        return None
    picture, axes = pyplot.subplots(figsize=(7.5, 4), layout="constrained")
    for what, colour in (("produce", _OURS), ("consume", "#0f766e")):
        lines = [rows[f"{what} {name}"] for name in names]
        sizes = [_SIZES[name] for name in names]
        ours = [entry["ours"] * size / 1e6 for entry, size in zip(lines, sizes, strict=True)]
        bare = [(entry["peer_value"] or 0) * size / 1e6 for entry, size in zip(lines, sizes, strict=True)]
        axes.plot(sizes, ours, "o-", color=colour, label=f"{what}, FlyMQ")
        axes.plot(sizes, bare, "--", color=colour, alpha=0.55, label=f"{what}, {lines[0]['peer']}")
    axes.set_xscale("log")
    axes.set_xticks(sizes, names)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("size of a message")
    axes.set_ylabel("MB/s, one broker, one connection")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return picture


# --- latency --------------------------------------------------------------------------------------------------------


def draw_latency(run: Run) -> Figure | None:
    rows = run["results"].get("latency", [])
    by_case: dict[str, dict[str, Row]] = {}
    for entry in rows:
        case, _, percentile = entry["bench"].rpartition(", ")
        by_case.setdefault(case.removeprefix("end to end, "), {})[percentile] = entry
    if not by_case:
        return None
    picture, axes = pyplot.subplots(figsize=(7.5, 4), layout="constrained")
    for case, percentiles in by_case.items():
        axes.plot(list(percentiles), [entry["ours"] for entry in percentiles.values()], "o-", label=case)
    floors = next(iter(by_case.values()))
    if all(entry["peer_value"] for entry in floors.values()):
        values = [entry["peer_value"] or 0.0 for entry in floors.values()]
        axes.plot(list(floors), values, "--", color=_LIMIT, label="echo server")
    axes.set_yscale("log")
    axes.set_ylabel("ms from the time a message was due")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return picture
