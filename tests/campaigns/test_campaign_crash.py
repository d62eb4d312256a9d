"""The short form of the crash campaign; `python -m tests.campaigns.crash` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns.crash import crash

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("seed", [1, 2])
def test_kill_9_breaks_no_promise_to_any_client(tmp_path: Path, seed: int) -> None:
    assert crash(seed, tmp_path, kills=3).violations == []


def test_kill_9_breaks_no_promise_to_a_producer_that_gives_up_records_meanwhile(tmp_path: Path) -> None:
    assert crash(3, tmp_path, kills=3, impatient=True).violations == []
