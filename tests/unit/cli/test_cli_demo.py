"""The chart and the feed of `flymq demo`."""

from flymq.cli.commands.demo.chart import Sales, Tally, draw, sparkline
from flymq.cli.commands.demo.orders import Feed


def result(window, key, count, revenue):
    return {"window_start": window, "key": key, "count": count, "revenue": revenue}


def test_the_newest_word_on_a_window_replaces_the_one_before():
    tally = Tally()
    tally.add([result("1", "tea", 2, 10.0), result("1", "tea", 5, 25.0), result("2", "tea", 1, 5.0)])
    assert tally.orders == 6
    assert tally.by_category() == {"tea": Sales(6, 30.0)}
    assert tally.by_window() == [5, 1]


def test_the_best_category_is_on_top_with_the_longest_bar():
    tally = Tally()
    tally.add([result("1", "tea", 4, 10.0), result("1", "wine", 1, 20.0)])
    heading, wine, tea, _, line = draw(tally)
    assert heading.split() == ["CATEGORY", "ORDERS", "REVENUE"]
    assert wine.split() == ["wine", "1", "20.00", "█" * 32]
    assert tea.split() == ["tea", "4", "10.00", "█" * 16]
    assert line.endswith("  █")


def test_a_line_shows_each_number_against_the_largest():
    assert sparkline([0, 4, 8]) == "▁▄█"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"


def test_orders_are_of_one_shop_and_add_up():
    order = Feed()._order()
    assert order.keys() == {"order_id", "customer", "category", "city", "quantity", "amount"}
    assert order["amount"] > 0
