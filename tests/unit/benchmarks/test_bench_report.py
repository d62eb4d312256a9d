"""The page, the pictures and the profile table that are made from a run."""

import pytest
from benchmarks.html_page import write_html
from benchmarks.peers.contender import Promise
from benchmarks.profiling import top
from benchmarks.results import Run
from benchmarks.row import Row, row
from benchmarks.standings import gaps, standings

from benchmarks import plots, report


def peer_row(what: str, ours: float, unit: str, theirs: float, peer: str = "Redis Streams") -> Row:
    entry = row(f"{Promise.PROCESS.value}: {what}", ours, unit, peer=peer, peer_value=theirs)
    return Row(**entry, note="appendfsync no")


PEERS = [
    peer_row("produce", 2e6, "msgs/s", 3e5),
    peer_row("produce", 0.3, "CPU s/M", 2.0),
    peer_row("produce, one message a request", 4e4, "msgs/s", 3e5),
    peer_row("end to end p99", 0.9, "ms", 0.3),
    peer_row("resident", 44.0, "MB", 43.0),
    peer_row("produce", 1.5e6, "msgs/s", 5e5, peer="Apache Kafka"),
]


@pytest.fixture
def run() -> Run:
    latency = [row(f"end to end, 100/s, {name}", 0.2, "ms", peer="echo", peer_value=0.1) for name in ("p50", "p99")]
    sizes = [
        row(f"{what} {size}", 1e6, "msgs/s", peer="bare", peer_value=2e6)
        for what in ("produce", "consume")
        for size in ("10 B", "100 B", "1 KB")
    ]
    return Run(
        machine={"processor": "P, 2 CPUs"},
        quick=False,
        results={"peers": PEERS, "latency": latency, "throughput": sizes},
    )


def test_flymq_is_behind_where_it_does_less_or_costs_more_and_the_largest_gap_is_first():
    assert [(gap.what, gap.unit, round(gap.factor, 1)) for gap in gaps(PEERS)] == [
        ("produce, one message a request", "msgs/s", 7.5),
        ("end to end p99", "ms", 3.0),
    ]


def test_each_way_to_use_flymq_stands_on_its_own_before_the_peers():
    found = standings(PEERS, Promise.PROCESS)
    assert [standing.name for standing in found] == [
        "FlyMQ",
        "FlyMQ, one message a request",
        "FlyMQ, Kafka's protocol",
        "Redis Streams",
        "Apache Kafka",
    ]
    assert found[1].values == {("produce", "msgs/s"): 4e4}
    assert found[3].settings == "appendfsync no"
    assert standings(PEERS, Promise.MACHINE) == []


@pytest.mark.slow
def test_the_page_has_tables_pictures_settings_and_what_is_slower(run, tmp_path):
    report.write(run, tmp_path)
    page = (tmp_path / "performance.md").read_text()
    for said in (
        "P, 2 CPUs",
        "appendfsync no",
        "### Where FlyMQ is behind",
        "Redis Streams 300.0 k (7.5 ×)",
        "| **FlyMQ** | 2.00 M |",
    ):
        assert said in page
    for name in plots.draw(run):
        assert f"images/performance-{name}.png" in page
        assert (tmp_path / "images" / f"performance-{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_pictures_are_drawn_only_of_what_was_measured(run):
    assert set(plots.draw(run)) == {"peers", "sizes", "latency"}
    del run["results"]["throughput"], run["results"]["peers"]
    assert set(plots.draw(run)) == {"latency"}


@pytest.mark.slow
def test_the_html_page_needs_no_other_file(run, tmp_path):
    write_html(run, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert 'src="http' not in page
    assert "Redis Streams" in page


def test_a_profile_tells_own_time_and_leaves_out_threads_that_wait():
    stacks = "\n".join(
        [
            "run (loop.py);serve (c.py);append (log.py) 60",
            "run (loop.py);serve (c.py) 40",
            "_worker (concurrent/futures/thread.py:69) 900",
        ]
    )
    lines = [line.split(maxsplit=2) for line in top(stacks).splitlines()]
    assert lines[1:] == [["60.0%", "60.0%", "append (log.py)"], ["40.0%", "100.0%", "serve (c.py)"]]
