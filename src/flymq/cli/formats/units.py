"""Parse and format durations and sizes: 10m, 7d, 64KiB, 1GiB."""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\Z", re.IGNORECASE)

_TIME_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTE_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}


def parse_duration_ms(text: str) -> int:
    """Parse a duration such as 90s or 1.5h into milliseconds; `ValueError` if it is invalid."""
    return _parse(text, _TIME_UNITS_MS, "ms, s, m, h, d or w")


def parse_bytes(text: str) -> int:
    """Parse a size such as 64KiB or 1GB into bytes; `ValueError` if it is invalid."""
    return _parse(text, _BYTE_UNITS, "KiB, MiB, GiB, TiB, or KB, MB, GB, TB")


def _parse(text: str, units: dict[str, int], known: str) -> int:
    match = _AMOUNT.match(text)
    if match is None or match[2].lower() not in units:
        raise ValueError(f"{text!r} is not a number with one of the units {known}")
    return round(float(match[1]) * units[match[2].lower()])


def show_bytes(count: int) -> str:
    """Format a size with about three digits, in a suitable unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def show_duration_ms(count: int) -> str:
    """Format a duration in the largest suitable unit: 90 s, 7 d."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} ms"
