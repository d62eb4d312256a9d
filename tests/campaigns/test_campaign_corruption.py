"""The short form of the corruption campaign; `python -m tests.campaigns.corruption` goes through all cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.campaigns.corruption import DAMAGES, KILLED, KINDS, STOPPED, all_cases, corrupt, template
from tests.campaigns.known_data import SETTINGS, audit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def two_cases(kind: str) -> list[tuple[str, str, str]]:
    """Return a case after a kill and one after a clean stop, with damages that differ from kind to kind."""
    damages = list(DAMAGES)
    first = list(KINDS).index(kind)
    order = [(KILLED, damages[(first + n) % len(damages)]) for n in range(len(damages))]
    order += [(STOPPED, damages[(first + 1 + n) % len(damages)]) for n in range(len(damages))]
    possible = [(kind, damage, after) for after, damage in order if (kind, damage, after) in all_cases()]
    return [
        next(case for case in possible if case[2] == after) for after in dict.fromkeys(case[2] for case in possible)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_served_right_or_reported_and_harms_nothing_else(tmp_path: Path, kind: str) -> None:
    for number, (_, damage, after) in enumerate(two_cases(kind)):
        folder = tmp_path / f"{damage}-after-{after}"
        folder.mkdir()
        assert corrupt(template(), number, folder, kind, damage, after).violations == []


def test_the_audit_of_undamaged_data_finds_nothing_and_misses_nothing(tmp_path: Path) -> None:
    """Otherwise the other tests would prove nothing."""
    for after in (KILLED, STOPPED):
        template().copy(after, tmp_path / after)
        broker = BrokerProcess(tmp_path / after, SETTINGS)
        try:
            found = audit(broker, template().known, set())
        finally:
            broker.kill()
        assert (found.violations, found.reports) == ([], [])
    broker = BrokerProcess(tmp_path / "empty", SETTINGS)
    try:
        assert audit(broker, template().known, set()).violations
    finally:
        broker.kill()
