"""The coordinators behave as in the scenarios."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.coordination.consumer_group_script import ConsumerGroupScript
from tests.unit.coordination.group_script import GroupScript
from tests.unit.coordination.scripts import Command, play
from tests.unit.coordination.transaction_script import TransactionScript

SCRIPTS: dict[str, type[GroupScript | ConsumerGroupScript | TransactionScript]] = {
    "groups": GroupScript,
    "consumer_groups": ConsumerGroupScript,
    "transactions": TransactionScript,
}
FOLDER = Path(__file__).parent / "scenarios"
SCENARIOS = sorted(FOLDER.rglob("*.txt"))


def player_for(path: Path) -> Callable[[str], Command]:
    return SCRIPTS[path.parent.name]().find


@pytest.mark.parametrize("path", SCENARIOS, ids=[f"{path.parent.name}/{path.stem}" for path in SCENARIOS])
def test_what_the_scenario_tells_is_what_happens(path: Path) -> None:
    assert play(path.read_text(), player_for(path)) == path.read_text()


def test_there_are_scenarios_for_every_coordinator() -> None:
    assert {path.parent.name for path in SCENARIOS} == set(SCRIPTS)
