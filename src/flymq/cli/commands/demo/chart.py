"""What `flymq demo` draws: a bar for each category and a line of how busy the shop was, window by window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flymq.cli.output import aligned

_BAR_WIDTH = 32
_LEVELS = "▁▂▃▄▅▆▇█"
_WINDOWS_SHOWN = 48


class Sales(NamedTuple):
    """What was sold of a category in a window."""

    orders: int
    revenue: float


class Tally:
    """The newest word on each window and category: the topic holds one each time it changed."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], Sales] = {}

    def add(self, results: Iterable[Mapping[str, Any]]) -> None:
        for each in results:
            self._latest[each["window_start"], each["key"]] = Sales(each["count"], each["revenue"])

    @property
    def orders(self) -> int:
        return sum(sales.orders for sales in self._latest.values())

    def by_category(self) -> dict[str, Sales]:
        """Return the sums over all windows, the best category first."""
        found: dict[str, Sales] = {}
        for (_, category), sales in self._latest.items():
            before = found.get(category, Sales(0, 0.0))
            found[category] = Sales(before.orders + sales.orders, before.revenue + sales.revenue)
        return dict(sorted(found.items(), key=lambda item: -item[1].revenue))

    def by_window(self) -> list[int]:
        """Return the orders of each window, in the order of time."""
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
        f"orders by the second   {sparkline(windows)}",
    ]


def sparkline(numbers: list[int]) -> str:
    """Return one character for each number, as high as the number is against the largest."""
    most = max(numbers, default=0) or 1
    return "".join(_LEVELS[number * (len(_LEVELS) - 1) // most] for number in numbers)
