"""The pytest plugin: a broker for each test that requests it. Every pytest run of every project with FlyMQ installed
loads it, so it imports the broker only when a test uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flymq.testing.broker import TestBroker


@pytest.fixture
def flymq_broker() -> Iterator[TestBroker]:
    """An empty broker for this test, on a free port."""
    from flymq.testing.broker import running_broker

    with running_broker() as broker:
        yield broker
