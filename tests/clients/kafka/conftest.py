"""One broker for all tests of a module; each test has topics, groups and transactional ids of its own."""

from collections.abc import Iterator
from itertools import count

import pytest
from tests.clients.kafka import kafkajs

from flymq.testing import TestBroker, running_broker

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A name nobody else uses; the broker creates the topic when it is first used."""
    return f"topic-{next(_numbers)}"


@pytest.fixture(scope="session")
def node_modules() -> str:
    """Where Node.js finds KafkaJS."""
    found = kafkajs.find_modules()
    if found is None:
        pytest.skip(kafkajs.MISSING)
    return found
