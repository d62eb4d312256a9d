from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.brokers import Brokers


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers that share topics."""
    brokers = Brokers(tmp_path_factory.mktemp("c"))
    try:
        yield brokers
    finally:
        brokers.close()
