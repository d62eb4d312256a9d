"""A real broker and a real HTTP client; each test has topics and groups of its own."""

from collections.abc import Iterator
from itertools import count

import httpx
import pytest

from flymq.testing import TestBroker, running_broker

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with running_broker(settings={"listener.http_port": 0}) as running:
        yield running


@pytest.fixture
def http(broker: TestBroker) -> Iterator[httpx.Client]:
    """A client of the port for HTTP alone."""
    with httpx.Client(base_url=f"http://127.0.0.1:{broker.http_port}", timeout=20) as client:
        yield client


@pytest.fixture
def api(broker: TestBroker) -> Iterator[httpx.Client]:
    """A client of the API, on the port that all protocols share."""
    with httpx.Client(base_url=f"http://127.0.0.1:{broker.port}/api/v1", timeout=20) as client:
        yield client


@pytest.fixture
def topic(api: httpx.Client) -> str:
    """A topic with two partitions."""
    name = f"topic-{next(_numbers)}"
    assert api.post("/topics", json={"name": name, "partitions": 2}).status_code == 201
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"
