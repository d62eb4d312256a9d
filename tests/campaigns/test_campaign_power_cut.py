"""The short form of the power-cut campaign; `python -m tests.campaigns.power_cut` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns.loop_disk import why_not
from tests.campaigns.power_cut import cut_power, simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_power_cut_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    on_loop = why_not(tmp_path) is None
    report = cut_power(seed, tmp_path, cuts=2) if on_loop else simulate(seed)
    assert report.violations == []


def test_a_power_cut_on_the_simulated_disk_loses_nothing_acknowledged() -> None:
    assert simulate(1_000).violations == []
