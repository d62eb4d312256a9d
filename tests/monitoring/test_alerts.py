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

from flymq.testing import running_broker

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "monitoring" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "monitoring" / "grafana" / "flymq.json"
RUNBOOKS = ROOT / "docs" / "runbooks"
PROMTOOL = shutil.which("promtool")

_METRIC = re.compile(r"\b(?:flymq|kafka|process)_\w+")
_EXPRESSION = re.compile(r"^ +expr: (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def pages() -> Iterator[dict[str, str]]:
    """Both pages of a broker that was used a little."""
    with running_broker() as broker, httpx.Client(base_url=f"http://127.0.0.1:{broker.port}") as http:
        http.post("/api/v1/topics", json={"name": "orders", "partitions": 2})
        http.post("/api/v1/topics/orders/records", json={"records": [{"value": 1}]})
        http.post("/api/v1/groups/billing/reset", json={"topics": ["orders"], "position": "earliest"})
        http.get("/api/v1/topics/absent")
        yield {path: http.get(path).text for path in ("/metrics", "/metrics/detailed")}


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


def test_the_dashboard_asks_for_metrics_that_exist(exposed: set[str]) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {name for panel in panels for target in panel["targets"] for name in _METRIC.findall(target["expr"])}
    assert len(asked) >= 15
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


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian's prometheus package) is not installed")
@pytest.mark.parametrize("arguments", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]])
def test_prometheus_accepts_the_rules(arguments: list[str]) -> None:
    done = subprocess.run([str(PROMTOOL), *arguments], cwd=ALERTS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian's prometheus package) is not installed")
@pytest.mark.parametrize("path", ["/metrics", "/metrics/detailed"])
def test_prometheus_accepts_the_pages(pages: dict[str, str], path: str) -> None:
    done = subprocess.run([str(PROMTOOL), "check", "metrics"], input=pages[path], capture_output=True, text=True)
    assert "error" not in done.stderr.lower(), done.stderr
