"""The table of Kafka's clients, docs/reference/kafka-clients.md, is made of these tests.

A test marked `shows(feature, client=…)`, or `by=` the name of the parameter that is the client, is a cell of the table.
With FLYMQ_KAFKA_CLIENTS set, all of them are written to that file as JSON: those that were collected, and how those
that ran ended. tools/kafka_clients_page.py makes the page of it.
"""

import json
import os
from pathlib import Path

import pytest

FOLDERS = [Path(__file__).parent / name for name in ("kafka", "jvm", "go")]
TARGET = os.environ.get("FLYMQ_KAFKA_CLIENTS")
CELL = "shows"
LEFT_OPEN = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
"""kafka-python leaves sockets to the garbage collector, which may come in any later test."""

_cells: dict[str, dict[str, str]] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{CELL}(feature, client, by): a cell of the table of Kafka's clients")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called with the items of all folders; only those of these folders are concerned."""
    for item in items:
        if not isinstance(item, pytest.Function) or not any(map(item.path.is_relative_to, FOLDERS)):
            continue
        item.add_marker(pytest.mark.filterwarnings(LEFT_OPEN))
        if item.path.parent.name in ("jvm", "go"):
            item.add_marker(pytest.mark.timeout(400))  # the first run on a machine downloads and compiles
        for mark in item.iter_markers(CELL):
            client = mark.kwargs.get("client") or item.callspec.params[mark.kwargs["by"]]
            if client == "native":
                continue  # it is there for comparison
            item.user_properties.append((CELL, {"client": client, "feature": mark.args[0], "test": item.nodeid}))


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        for name, cell in item.user_properties:
            if name == CELL and isinstance(cell, dict):
                _cells[f"{cell['feature']} {item.nodeid}"] = {**cell, "outcome": "not run"}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Reports of all workers come by here, with the cells of their tests."""
    if report.when == "call" or report.outcome != "passed":
        for name, cell in report.user_properties:
            if name == CELL and isinstance(cell, dict):
                _cells[f"{cell['feature']} {report.nodeid}"] = {**cell, "outcome": report.outcome}


def pytest_sessionfinish(session: pytest.Session) -> None:
    if TARGET and not hasattr(session.config, "workerinput"):
        Path(TARGET).write_text(json.dumps(list(_cells.values()), indent=1))
