"""Every family of workloads runs for a moment against a real broker; what the figures are is of no concern here."""

import importlib
import json

import pytest
from benchmarks.__main__ import SUITES, main
from benchmarks.cluster import suite as cluster
from benchmarks.cluster.measures import write_pause
from benchmarks.cluster.members import flymq_cluster
from benchmarks.cluster.producers import Librdkafka
from benchmarks.cluster.topics import Topics
from benchmarks.peers import suite
from benchmarks.peers.contender import Promise
from benchmarks.peers.flymq import WAYS, FlyMQ
from benchmarks.results import Run, load, save
from benchmarks.row import row

FAMILIES = [name for name, module in SUITES.items() if module.startswith("benchmarks.workloads.")]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_quick_round_of_each_family_has_figures(family):
    rows = importlib.import_module(SUITES[family]).run(quick=True)
    assert rows
    assert len({(entry["bench"], entry["unit"]) for entry in rows}) == len(rows)
    assert all(entry["ours"] > 0 for entry in rows)


def test_a_quick_round_of_a_cluster_has_figures():
    parts = [part for part in cluster.PARTS if part not in ("pauses", cluster.LEADER_CHANGES)]
    rows = cluster.run(quick=True, only=parts)
    assert len({entry["bench"] for entry in rows}) == len(rows) == 15, "every part has its rows"
    assert all(entry["ours"] > 0 for entry in rows)


def test_a_pause_of_writes_is_measured_when_a_leader_hands_over(tmp_path):
    with flymq_cluster(tmp_path) as brokers:
        Topics(brokers).until_all_have_joined()
        assert write_pause(brokers, Librdkafka, "SIGTERM") > 0


def test_flymq_takes_its_turns_in_each_way_it_is_used(tmp_path):
    tallies = suite._measure(Promise.MACHINE, [FlyMQ()], suite.QUICK)
    assert [tally.contender.name for tally in tallies] == list(WAYS)
    for tally in tallies:
        assert tally.produced[0].rate > 0
        assert tally.consumed[0].cpu_s > 0
        assert 0 < tally.delivered[0].p50_ms <= tally.delivered[0].max_ms


def test_a_run_is_kept_as_json_and_compared_with_an_older_one(tmp_path, capsys):
    kept = tmp_path / "run.json"
    assert main(["--quick", "--only", "durability", "--json", str(kept)]) == 0
    run = json.loads(kept.read_text())
    assert run["quick"] is True
    assert "Python" in run["machine"]
    assert [entry["unit"] for entry in run["results"]["durability"]] == ["msgs/s"] * 9
    assert main(["--quick", "--only", "durability", "--compare", str(kept)]) == 0
    assert f"beside {kept}" in capsys.readouterr().out


def test_a_suite_can_be_left_out_and_others_kept_from_an_earlier_run(tmp_path):
    kept = tmp_path / "run.json"
    earlier = [row("read", 1.0, "msgs/s")]
    save(kept, Run(machine={}, quick=True, results={"spark": earlier}))
    chosen = ["--only", "durability", "--only", "sdk", "--without", "sdk"]
    assert main(["--quick", *chosen, "--json", str(kept), "--keep"]) == 0
    results = load(kept)["results"]
    assert list(results) == ["spark", "durability"]
    assert results["spark"] == earlier


def test_a_suite_that_fails_does_not_take_the_others_with_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SUITES, "kafka", "benchmarks.nowhere")
    kept = tmp_path / "run.json"
    assert main(["--quick", "--only", "kafka", "--only", "durability", "--json", str(kept)]) == 1
    assert list(json.loads(kept.read_text())["results"]) == ["durability"]
    assert "These failed: kafka." in capsys.readouterr().err
