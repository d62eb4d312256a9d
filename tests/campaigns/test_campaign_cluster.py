"""The short form of the campaign against a cluster; `python -m tests.campaigns.cluster` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns import failing_disk
from tests.campaigns.cluster import ETCD, fight, namespaces_missing
from tests.etcd_process import current

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_brokers_that_are_killed_paused_and_restarted_break_no_promise_to_any_client(tmp_path: Path) -> None:
    faults = ["kill_a_leader", "restart", "kill_all"]
    report, _ = fight(1, tmp_path, faults=faults)
    assert report.violations == []


@pytest.mark.skipif(failing_disk.why_not() is not None, reason=str(failing_disk.why_not()))
def test_a_broker_whose_disk_fails_breaks_no_promise_to_any_client(tmp_path: Path) -> None:
    report, _ = fight(2, tmp_path, faults=["fail_writes"])
    assert report.violations == []


@pytest.mark.skipif(namespaces_missing() is not None, reason=str(namespaces_missing()))
def test_a_full_disk_and_a_broken_network_break_no_promise_to_any_client(tmp_path: Path) -> None:
    report, _ = fight(3, tmp_path, faults=["fill_the_disk", "cut_off_from_brokers"])
    assert report.violations == []


@pytest.mark.skipif(current() is None, reason="there is no current etcd: run `make etcd`")
def test_the_loss_of_members_of_etcd_breaks_no_promise_to_any_client(tmp_path: Path) -> None:
    faults = ["kill_a_member_of_etcd", "kill_a_leader", *(["cut_off"] if namespaces_missing() is None else [])]
    report, _ = fight(4, tmp_path, faults=faults, store=ETCD)
    assert report.violations == []
