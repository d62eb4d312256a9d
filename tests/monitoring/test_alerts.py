"""Alerts and dashboards use only metrics that a broker really exposes, and every alert says what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flymq import FlyMQClient
from flymq.errors import TopicNotFound
from flymq.testing import running_broker

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "monitoring" / "prometheus" / "alerts.yml"
TESTS = ROOT / "monitoring" / "prometheus" / "alerts_test.yml"
DASHBOARDS = sorted((ROOT / "monitoring" / "grafana").glob("*.json"))
RUNBOOKS = ROOT / "docs" / "runbooks"
PROMTOOL = shutil.which("promtool")

_METRIC = re.compile(r"\b(?:flymq|kafka|process)_\w+")
_EXPRESSION = re.compile(r"^ +expr: (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def pages() -> Iterator[dict[str, str]]:
    """Both pages of a broker that was used a little, and that of a client."""
    with running_broker() as broker, httpx.Client(base_url=f"http://127.0.0.1:{broker.port}") as http:
        http.post("/api/v1/topics", json={"name": "orders", "partitions": 2})
        http.post("/api/v1/topics/orders/records", json={"records": [{"value": 1}]})
        http.post("/api/v1/groups/billing/reset", json={"topics": ["orders"], "position": "earliest"})
        http.get("/api/v1/topics/absent")
        with FlyMQClient(broker.address) as client:
            client.list_topics()
            with pytest.raises(TopicNotFound):
                client.delete_topic("absent")
            of_client = client.metrics().prometheus()
        yield {"client": of_client} | {path: http.get(path).text for path in ("/metrics", "/metrics/detailed")}


@pytest.fixture(scope="module")
def exposed(pages: dict[str, str]) -> set[str]:
    """Every name a sample has, those of histograms with their suffixes."""
    return {match[0] for page in pages.values() for match in re.finditer(r"^[a-z]\w+", page, re.MULTILINE)}


def expressions() -> list[str]:
    return [json.loads(quoted) for quoted in _EXPRESSION.findall(ALERTS.read_text())]


def names() -> list[str]:
    return re.findall(r"- alert: (\w+)", ALERTS.read_text())


def test_alerts_ask_for_metrics_that_exist(exposed: set[str]) -> None:
    asked = {name for expression in expressions() for name in _METRIC.findall(expression)}
    assert len(asked) >= 10
    assert asked - exposed == set()


def queries(dashboard: Path) -> list[str]:
    panels = json.loads(dashboard.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    return [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_metrics_that_exist(dashboard: Path, exposed: set[str]) -> None:
    asked = {name for query in queries(dashboard) for name in _METRIC.findall(query)}
    assert len(asked) >= 10
    assert asked - exposed == set()


def test_every_alert_has_a_page_that_says_what_to_do() -> None:
    assert sorted(names()) == sorted(page.stem for page in RUNBOOKS.glob("FlyMQ*.md"))
    index = (RUNBOOKS / "README.md").read_text()
    for name, expression in zip(names(), expressions(), strict=True):
        page = (RUNBOOKS / f"{name}.md").read_text()
        assert f"runbook: docs/runbooks/{name}.md" in ALERTS.read_text()
        assert expression in page, f"the page of {name} shows another rule than the one that is checked"
        assert "## What to do" in page
        assert f"({name}.md)" in index


def test_every_alert_is_seen_to_fire() -> None:
    fired = re.findall(r"alertname: (\w+)\n +exp_alerts:\n", TESTS.read_text())
    assert sorted(fired) == sorted(names())


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian's prometheus package) is not installed")
@pytest.mark.parametrize("arguments", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]])
def test_prometheus_accepts_the_rules(arguments: list[str]) -> None:
    done = subprocess.run([str(PROMTOOL), *arguments], cwd=ALERTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian's prometheus package) is not installed")
@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_prometheus_understands_the_queries_of_a_dashboard(dashboard: Path, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries(dashboard))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))  # JSON is YAML
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian's prometheus package) is not installed")
@pytest.mark.parametrize("path", ["client", "/metrics", "/metrics/detailed"])
def test_prometheus_accepts_the_pages(pages: dict[str, str], path: str) -> None:
    done = subprocess.run([str(PROMTOOL), "check", "metrics"], input=pages[path], capture_output=True, text=True)
    assert "error" not in done.stderr.lower(), done.stderr
