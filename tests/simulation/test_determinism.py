"""A seed is a history: what a simulation found once, it finds again, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.test_attempts_simulated import query_survives
from tests.simulation.test_groups_simulated import members_survive, told_members_survive
from tests.simulation.test_producers_simulated import producers_survive
from tests.simulation.test_transactions_simulated import transactions_survive

from flymq.host.virtual_time import run

SCENARIOS = [transactions_survive, producers_survive, query_survives, members_survive, told_members_survive]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_seed_always_gives_the_same_history(scenario: Callable[[int], Coroutine[Any, Any, str]]) -> None:
    histories = [run(scenario(seed)) for seed in (1, 1, 2)]
    assert histories[0] == histories[1]
    assert histories[0] != histories[2]


def test_a_seed_gives_the_same_history_in_another_process_with_other_hashes() -> None:
    here = run(members_survive(3))
    program = (
        "from flymq.host.virtual_time import run\n"
        "from tests.simulation.test_groups_simulated import members_survive\n"
        "print(run(members_survive(3)))"
    )
    for hash_seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert there.stdout.strip() == here
