"""The pytest plugin: a broker for each test that asks for one. It is loaded by every pytest run of every project that
has FlyMQ installed, so it imports the broker only when a test asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flymq.testing.broker import TestBroker


@pytest.fixture
def flymq_broker() -> Iterator[TestBroker]:
    """A broker of its own, empty, on a free port."""
    from flymq.testing.broker import running_broker

    with running_broker() as broker:
        yield broker
