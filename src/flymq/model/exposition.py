"""Prometheus' text exposition format, one line at a time, so that a long page can be streamed in short steps.

The broker and the SDK both render their metrics with this. Why not prometheus-client: docs/decisions/0014.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flymq.model.histogram import BOUNDS_S, Histogram

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels(**values: str | int) -> str:
    """Render labels as they appear between the braces."""
    return ",".join([f'{name}="{_escape(value)}"' for name, value in values.items()])


def gauge(name: str, text: str, *samples: tuple[str, float]) -> Iterator[str]:
    return gauges(name, text, samples)


def gauges(name: str, text: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Render a gauge: a value that can go up and down. A sample is its labels and the value."""
    return _family(name, text, "gauge", samples)


def counters(name: str, text: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Render a counter: a value that only goes up until the process restarts."""
    assert name.endswith("_total"), name
    return _family(name, text, "counter", samples)


def histograms(name: str, text: str, samples: Iterable[tuple[str, Histogram]]) -> Iterator[str]:
    """Render histograms of durations in seconds."""
    yield _head(name, text, "histogram")
    for shown, histogram in samples:
        before = f"{shown}," if shown else ""
        below = 0
        lines = []
        for bound, count in zip((*BOUNDS_S, "+Inf"), histogram.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{{before}le="{bound}"}} {below}\n')
        yield "".join(lines)
        yield f"{name}_sum{_braces(shown)} {histogram.sum_s}\n{name}_count{_braces(shown)} {below}\n"


def _family(name: str, text: str, kind: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield _head(name, text, kind)
    for shown, value in samples:
        yield f"{name}{_braces(shown)} {value}\n"


def _head(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _braces(shown: str) -> str:
    return f"{{{shown}}}" if shown else ""


def _escape(value: str | int) -> str:
    return value.translate(_ESCAPES) if isinstance(value, str) else str(value)
