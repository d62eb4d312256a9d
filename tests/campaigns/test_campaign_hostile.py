"""The short form of the campaign with hostile clients; `python -m tests.campaigns.hostile` prints latencies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns.attacks import ATTACKS
from tests.campaigns.hostile import attack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 4


@pytest.mark.parametrize("name", ATTACKS)
def test_well_behaved_clients_are_served_beside_hostile_ones(tmp_path: Path, name: str) -> None:
    assert attack(name, 1, tmp_path, SECONDS).violations == []
