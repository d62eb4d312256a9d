"""The chart of `flymq demo`: a bar for each category, and a sparkline of orders per window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flymq.cli.output import aligned

_BAR_WIDTH = 32
_LEVELS = "▁▂▃▄▅▆▇█"
_WINDOWS_SHOWN = 48


class Sales(NamedTuple):
    """Orders and revenue of a category in a window."""

    orders: int
    revenue: float


class Tally:
    """The latest result of each window and category: the topic has a record for each update."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], Sales] = {}

    def add(self, results: Iterable[Mapping[str, Any]]) -> None:
        for each in results:
            self._latest[each["window_start"], each["key"]] = Sales(each["count"], each["revenue"])

    @property
    def orders(self) -> int:
        return sum(sales.orders for sales in self._latest.values())

    def by_category(self) -> dict[str, Sales]:
        """Return the totals over all windows, highest revenue first."""
        found: dict[str, Sales] = {}
        for (_, category), sales in self._latest.items():
            before = found.get(category, Sales(0, 0.0))
            found[category] = Sales(before.orders + sales.orders, before.revenue + sales.revenue)
        return dict(sorted(found.items(), key=lambda item: -item[1].revenue))

    def by_window(self) -> list[int]:
        """Return the orders of each window, oldest first."""
        found: dict[str, int] = {}
        for (window, _), sales in self._latest.items():
            found[window] = found.get(window, 0) + sales.orders
        return [found[window] for window in sorted(found)]


def draw(tally: Tally) -> list[str]:
    """Return the chart as lines."""
    sums = tally.by_category()
    most = max((sales.revenue for sales in sums.values()), default=0.0) or 1.0
    rows = [
        (name, f"{sales.orders:,}", f"{sales.revenue:,.2f}", "█" * round(sales.revenue / most * _BAR_WIDTH))
        for name, sales in sums.items()
    ]
    windows = tally.by_window()[-_WINDOWS_SHOWN:]
    return [
        *aligned([("CATEGORY", "ORDERS", "REVENUE", ""), *rows]),
        "",
        f"orders per second   {sparkline(windows)}",
    ]


def sparkline(numbers: list[int]) -> str:
    """Return a bar character for each number, scaled to the largest."""
    most = max(numbers, default=0) or 1
    return "".join(_LEVELS[number * (len(_LEVELS) - 1) // most] for number in numbers)
