import json

import pytest
from tests.clients.cli.conftest import Flymq

from flymq.cli.commands.bench import own_broker
from flymq.client.sync.client import FlyMQClient


def test_a_short_bench_fills_its_table_and_leaves_no_topic(flymq: Flymq) -> None:
    measured = flymq("bench", "-n", "2000", "--round-trips", "20", "--persistence", "fsync", "-o", "json")
    assert measured.code == 0, measured.err
    results = {result["what"]: result for result in json.loads(measured.out)}
    assert all(result["messages_per_s"] or result["p50_ms"] for result in results.values())
    assert len(results) == 7
    assert 0 < results["deliver 500/s"]["p50_ms"] <= results["deliver 500/s"]["max_ms"]
    assert "flymq-bench" not in flymq("topic", "list").out.decode()


def test_without_a_broker_the_bench_runs_one_of_its_own() -> None:
    with own_broker() as address, FlyMQClient(address) as client:
        assert client.list_topics() == []


def test_the_doctor_greets_the_broker(flymq: Flymq, tmp_path_factory: pytest.TempPathFactory) -> None:
    seen = flymq("doctor", "--data-dir", str(tmp_path_factory.mktemp("data")), "-o", "json")
    findings = {finding["what"]: finding for finding in json.loads(seen.out)}
    assert findings["broker"]["status"] == "ok"
    assert {finding["status"] for finding in findings.values()} <= {"ok", "warn", "fail"}
    assert all(finding["advice"] for finding in findings.values() if finding["status"] != "ok")


def test_the_doctor_says_what_limits_the_broker(flymq: Flymq, tmp_path_factory: pytest.TempPathFactory) -> None:
    seen = flymq("doctor", "--data-dir", str(tmp_path_factory.mktemp("data")), "-o", "json")
    findings = json.loads(seen.out)
    asked = findings[[finding["what"] for finding in findings].index("broker") + 1 :]
    assert asked
    if len(asked) == 1 and asked[0]["what"] == "load":
        assert asked[0]["text"] == "no bottleneck"
    else:  # this machine is busy, or its disk nearly full
        assert {finding["status"] for finding in asked} == {"warn"}


def test_a_fault_is_an_exit_code(flymq: Flymq) -> None:
    sick = flymq("doctor", "--data-dir", "/proc/1")
    assert sick.code == 1
    assert any(line.strip().startswith("Try: ") for line in sick.lines)
