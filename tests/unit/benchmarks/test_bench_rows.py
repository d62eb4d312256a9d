"""Rows, tables, and the comparison of two runs."""

from benchmarks.comparison import compare
from benchmarks.figures import Figure
from benchmarks.results import Run, load, save
from benchmarks.row import number, row, show, table


def run_of(**figures: float) -> Run:
    return Run(machine={}, quick=False, results={"s": [row(name, value, "1/s") for name, value in figures.items()]})


def test_a_row_tells_the_ratio_to_what_stands_beside_it():
    entry = row("produce", 300.0, "msgs/s", peer="limit", peer_value=Figure(400.0, 390.0, 410.0))
    assert (entry["ratio"], entry["peer_value"]) == (0.75, 400.0)


def test_columns_that_no_row_fills_are_left_out():
    assert table([row("a", 1.0, "s")])[0] == ("what", "FlyMQ", "unit")
    with_cost = row("a", Figure(10.0, 9.0, 12.0), "s", cpu_s_per_million=0.25)
    assert table([with_cost]) == [("what", "FlyMQ", "unit", "±", "CPU s/M"), ("a", "10.0", "s", "20%", "0.250")]


def test_one_round_has_no_spread():
    assert row("a", Figure(10.0, 10.0, 10.0), "s")["spread"] is None


def test_numbers_are_short():
    assert [number(value) for value in (None, 0.0123, 3.14159, 1234.5, 56_789, 7_654_321)] == [
        "",
        "0.012",
        "3.1",
        "1234",
        "56.8 k",
        "7.65 M",
    ]


def test_a_table_lines_up_its_numbers_at_the_right():
    lines = show([row("a", 1.0, "s"), row("bbb", 1000.0, "s")]).splitlines()
    assert lines[1:] == ["a       1.0  s", "bbb    1000  s"]


def test_a_comparison_marks_what_changed_by_more_than_the_noise():
    shown = compare(run_of(same=100, up=100, down=100, gone=1), run_of(same=105, up=150, down=50, new=1)).splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["same", "up", "down"]
    assert [line.split()[-1] for line in shown[1:]] == ["1.05", "higher", "lower"]


def test_a_change_within_the_spread_of_the_rounds_is_noise():
    old, new = run_of(a=100), run_of(a=130)
    new["results"]["s"][0]["spread"] = 0.4
    assert "higher" not in compare(old, new)


def test_a_run_is_read_back_as_it_was_saved(tmp_path):
    save(tmp_path / "deep" / "run.json", run_of(a=1.5))
    assert load(tmp_path / "deep" / "run.json") == run_of(a=1.5)
