"""The pytest plugin: a broker for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flymq.testing.broker import TestBroker, running_broker


@pytest.fixture
def flymq_broker() -> Iterator[TestBroker]:
    """A broker of its own, empty, on a free port."""
    with running_broker() as broker:
        yield broker
