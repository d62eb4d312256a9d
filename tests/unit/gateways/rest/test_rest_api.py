"""The table of operations, the document made from it, and what is answered before the broker serves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from flymq.broker.service.requests import Requests
from flymq.gateways.budget import BufferBudget
from flymq.gateways.connection import ConnectionLimits, SharedByConnections
from flymq.gateways.rest.http.app import Rest, RestSettings, build_app
from flymq.gateways.rest.http.connection import speaks_http
from flymq.gateways.rest.http.problems import status_of
from flymq.gateways.rest.schema.operation_table import OPERATIONS, api_document
from flymq.gateways.rest.schema.paging import take_page
from flymq.gateways.rest.schema.reference import main
from flymq.gateways.rest.schema.shapes import Page
from flymq.host.clock import ManualClock
from flymq.host.disk import SystemDisk
from flymq.model.errors import CoordinatorLoading, FlyMQError, NotCoordinator, TopicIsInternal, all_errors
from flymq.model.histogram import Histogram
from flymq.server.monitoring.health import Phase
from flymq.server.monitoring.monitor import Monitor
from flymq.wire.first_bytes import Speaks


@pytest.fixture
def starting(tmp_path: Path) -> httpx.AsyncClient:
    """A client of a broker that still reads its disk."""
    clock = ManualClock()
    shared = SharedByConnections(clock, BufferBudget(1 << 20), ConnectionLimits(), Requests())
    observation = Monitor(7, shared, Histogram(), SystemDisk(), tmp_path)
    rest = Rest(RestSettings(), shared, observation, OPERATIONS)
    return httpx.AsyncClient(transport=httpx.ASGITransport(build_app(rest)), base_url="http://broker")


async def test_a_starting_broker_is_live_but_neither_started_nor_ready(starting: httpx.AsyncClient) -> None:
    assert (await starting.get("/livez")).status_code == 200
    assert (await starting.get("/startupz")).status_code == 503
    assert (await starting.get("/readyz")).status_code == 503
    health = await starting.get("/health")
    assert (health.status_code, health.json()["status"], health.json()["broker"]) == (503, Phase.STARTING.value, 7)


async def test_a_starting_broker_refuses_everything_else_for_the_moment(starting: httpx.AsyncClient) -> None:
    for path in ("/api/v1/topics", "/metrics", "/api/v1/diagnosis"):
        refused = await starting.get(path)
        assert (refused.status_code, refused.json()["code"]) == (503, "BROKER_STARTING")
        assert refused.headers["Retry-After"] == "1"


def test_every_error_has_a_status_that_says_whose_fault_it_is() -> None:
    for code, error in all_errors().items():
        status = status_of(error)
        assert 400 <= status < 600, code
        if error.retriable:
            assert status in (408, 409, 429, 503, 507, 404, 500), code


def test_an_error_that_is_not_in_the_table_has_the_status_of_its_kind() -> None:
    class NewError(all_errors()["TOPIC_NOT_FOUND"]):  # type: ignore[misc]
        """Not known to the table."""

    assert status_of(NewError) == 404
    assert status_of(TopicIsInternal) == 403
    assert status_of(NotCoordinator) == status_of(CoordinatorLoading) == 503
    assert status_of(FlyMQError) == 500


def test_the_document_describes_every_operation_once() -> None:
    document = json.loads(api_document())
    described = [(method, path) for path, methods in document["paths"].items() for method in methods]
    assert len(described) == len(OPERATIONS)
    names = [document["paths"][path][method]["operationId"] for method, path in described]
    assert len(set(names)) == len(names)
    for method, path in described:
        assert document["paths"][path][method]["summary"], path


def test_every_reference_in_the_document_leads_somewhere() -> None:
    text = api_document().decode()
    schemas = json.loads(text)["components"]["schemas"]
    assert set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text)) <= set(schemas)


def test_first_bytes_of_http_are_known_however_few() -> None:
    for first in (b"GET /", b"POST", b"PUT /x", b"DELETE", b"HEAD /", b"OPTIONS", b"PATCH /"):
        assert speaks_http(first) is Speaks.YES, first
    for first in (b"G", b"PO", b"QUE"):
        assert speaks_http(first) is Speaks.MORE, first
    for first in (b"\x00\x00\x00\x10", b"AMQP", b"\x16\x03", b"GEX "):
        assert speaks_http(first) is Speaks.NO, first


def test_pages_cover_everything_once_in_order() -> None:
    items = [f"name {number:02}" for number in range(7)]
    seen: list[str] = []
    token: str | None = ""
    while token is not None:
        taken, token = take_page(items, str, Page(limit=3, page_token=token))
        seen += taken
    assert seen == items


def test_the_document_in_the_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[4])
    assert main(["--check"]) == 0
