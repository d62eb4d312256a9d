import json
from collections.abc import Iterator

import pytest
from tests.clients.cli.conftest import Flymq, StartFlymq

from flymq.client.sync.client import FlyMQClient
from flymq.testing import TestBroker


@pytest.fixture
def readers(flymq: Flymq) -> Iterator[str]:
    """A group that has read three of five messages and has no members."""
    flymq("topic", "create", "orders", "-p", "1", "--if-not-exists")
    flymq("topic", "create", "other", "-p", "1", "--if-not-exists")
    flymq("produce", "orders", "1", "2", "3", "4", "5")
    flymq("consume", "orders", "-g", "readers", "-n", "3")
    yield "readers"
    flymq("group", "delete", "readers", "--yes")
    flymq("topic", "delete", "orders", "other", "--yes")


def positions(flymq: Flymq) -> list[tuple[int, int]]:
    described = json.loads(flymq("group", "describe", "readers", "-o", "json").out)
    return [(at["offset"], at["lag"]) for at in described["positions"]]


def test_a_group_is_listed_and_described_with_its_lag(flymq: Flymq, readers: str) -> None:
    assert ["readers", "empty", "0"] in [line.split() for line in flymq("group", "list").lines]
    heading, _, columns, row = flymq("group", "describe", readers).lines
    assert heading == "Group readers: empty, 0 members"
    assert columns.split() == ["TOPIC", "PARTITION", "NEXT", "OFFSET", "END", "LAG", "TIME", "LAG", "MEMBER"]
    assert row.split()[:5] == ["orders", "0", "3", "5", "2"]


def test_a_group_is_moved_to_an_end_or_to_a_time(flymq: Flymq, readers: str) -> None:
    for position, expected in {"earliest": (0, 5), "latest": (5, 0), "1h": (0, 5)}.items():
        assert flymq("group", "reset", readers, "--to", position).code == 0
        assert positions(flymq) == [expected]
    assert flymq("consume", "orders", "-g", readers).lines == ["1", "2", "3", "4", "5"]


def test_a_partition_is_moved_to_an_offset_that_it_holds(flymq: Flymq, readers: str) -> None:
    to_offset = ("group", "reset", readers, "--topic", "orders", "--partition", "0", "--to")
    assert flymq(*to_offset, "1").code == 0
    assert positions(flymq) == [(1, 4)]
    refused = flymq(*to_offset, "6")
    assert refused.code == 1
    assert "orders-0 has the offsets 0 to 5" in refused.err
    assert positions(flymq) == [(1, 4)]


def test_a_dry_run_shows_the_move_and_makes_none(flymq: Flymq, readers: str) -> None:
    shown = flymq("group", "reset", readers, "--to", "earliest", "--topic", "orders", "--dry-run", "-o", "json")
    assert json.loads(shown.out) == [{"topic": "orders", "partition": 0, "offset": 0}]
    assert positions(flymq) == [(3, 2)]


def test_a_group_with_members_is_not_moved_and_a_member_that_is_told_to_end_leaves_it(
    flymq: Flymq, readers: str, broker: TestBroker, start_flymq: StartFlymq
) -> None:
    member = start_flymq("consume", "orders", "-g", readers, "--follow", "--server", broker.address)
    assert member.stdout is not None
    assert member.stdout.readline() == b"4\n"
    refused = flymq("group", "reset", readers, "--to", "earliest")
    assert (refused.code, refused.err.splitlines()[1]) == (1, "Try: Stop all members of the group first.")
    member.terminate()
    assert member.wait(30) == 143
    assert flymq("group", "reset", readers, "--to", "earliest").code == 0


def test_what_a_group_did_not_get_to_print_is_not_committed(
    flymq: Flymq, broker: TestBroker, start_flymq: StartFlymq
) -> None:
    flymq("topic", "create", "much", "-p", "1")
    with FlyMQClient(broker.address) as client:
        client.produce_batch("much", [b"x" * 1000] * 2_000)
    member = start_flymq("consume", "much", "-g", "cut-off", "--server", broker.address)
    assert member.stdout is not None
    member.stdout.readline()
    member.stdout.close()
    assert member.wait(30) == 0
    again = flymq("consume", "much", "-g", "cut-off").lines
    assert len(again) >= 1_900  # a pipe holds 64 KiB: that many could have been taken for printed, not more


def test_deleting_a_group_asks_first(flymq: Flymq, readers: str) -> None:
    assert flymq("group", "delete", readers).code == 2
    assert flymq("group", "delete", readers, "--yes").code == 0
    assert flymq("group", "describe", readers).code == 1


@pytest.mark.parametrize("position", ["3", "-3", "yesterday"])
def test_other_positions_are_wrong_usage(flymq: Flymq, position: str) -> None:
    assert flymq("group", "reset", "readers", "--to", position).code == 2
