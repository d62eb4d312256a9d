from collections.abc import Iterator

import pytest
from benchmarks.raw_client import RawClient

from flymq.testing import TestBroker


@pytest.fixture
def client(flymq_broker: TestBroker) -> Iterator[RawClient]:
    """A plain socket to a broker, with the frames written by hand."""
    raw = RawClient(flymq_broker.port)
    raw.socket.settimeout(20)
    yield raw
    raw.close()
