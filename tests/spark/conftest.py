"""One local Spark session for all tests of this folder: a JVM takes seconds to start and half a gigabyte.

All these tests run in one process of pytest-xdist, see tests/conftest.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flymq import FlyMQClient
from flymq.spark.session import QUICK_START, open_session
from flymq.testing import TestBroker, running_broker

HERE = Path(__file__).parent
_numbers = count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two cores in which a failed task is tried again, up to four times."""
    with open_session("tests", master="local[2,4]", settings=QUICK_START) as session:
        yield session


@pytest.fixture(scope="session")
def broker() -> Iterator[TestBroker]:
    """One broker for all; every test has topics of its own."""
    with running_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def client(broker: TestBroker) -> Iterator[FlyMQClient]:
    with FlyMQClient(broker.address) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest, client: FlyMQClient) -> str:
    """A topic of three partitions, named after the test."""
    name = f"{request.node.originalname}-{next(_numbers)}"
    client.create_topic(name, partitions=3)
    return name
