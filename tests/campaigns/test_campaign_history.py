"""The checker of the campaigns finds each kind of broken promise; otherwise a campaign that passes proves nothing."""

from __future__ import annotations

import pytest
from tests.campaigns.history import History, Outcome

from flymq.model.names import TopicPartition

P = TopicPartition("t", 0)


def two_writes() -> History:
    """`a` and `b` written by one writer and acknowledged, `c` without an answer."""
    history = History()
    for number, value in enumerate([b"a", b"b", b"c"]):
        history.write("w", number, value)
    history.acknowledge(b"a", P, 0)
    history.acknowledge(b"b", P, 1)
    return history


def kinds(history: History, *values: bytes) -> list[str]:
    log = {P: list(enumerate(values))}
    return [violation.split(":")[0] for violation in history.violations(log, log)]


def test_a_log_with_everything_acknowledged_is_accepted_with_and_without_what_is_in_doubt() -> None:
    assert kinds(two_writes(), b"a", b"b") == []
    assert kinds(two_writes(), b"a", b"b", b"c") == []


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([b"a"], ["lost"]),
        ([b"a", b"b", b"b"], ["repeated", "out of order"]),
        ([b"b", b"a"], ["offset reused", "lost", "out of order"]),
        ([b"a", b"b", b"x"], ["wrong bytes"]),
        ([b"a", b"b", b"c", b"c"], ["repeated", "out of order"]),
    ],
)
def test_a_log_that_breaks_a_promise_is_not(values: list[bytes], found: list[str]) -> None:
    assert set(kinds(two_writes(), *values)) == set(found)


def test_an_offset_that_a_reader_saw_stays_what_it_was() -> None:
    history = two_writes()
    history.see(P, 2, b"c")
    history.write("other", 0, b"d")
    assert kinds(history, b"a", b"b", b"d") == ["offset reused"]


@pytest.mark.parametrize(
    ("outcome", "visible", "found"),
    [
        (Outcome.COMMITTED, [b"x", b"y"], []),
        (Outcome.COMMITTED, [], ["lost transaction"]),
        (Outcome.COMMITTED, [b"x"], ["half a transaction"]),
        (Outcome.ABORTED, [], []),
        (Outcome.ABORTED, [b"x", b"y"], ["aborted and visible"]),
        (Outcome.IN_DOUBT, [b"x", b"y"], []),
        (Outcome.IN_DOUBT, [], []),
        (Outcome.IN_DOUBT, [b"y"], ["half a transaction"]),
    ],
)
def test_a_transaction_is_visible_as_a_whole_or_not_at_all(
    outcome: Outcome, visible: list[bytes], found: list[str]
) -> None:
    history = History()
    transaction = history.begin("one")
    for number, value in enumerate([b"x", b"y"]):
        history.write("w", number, value, transaction)
    transaction.outcome = outcome
    places = {b"x": 0, b"y": 1}
    log = {P: [(places[value], value) for value in visible]}
    everything = {P: [(0, b"x"), (1, b"y")]}
    assert [violation.split(":")[0] for violation in history.violations(log, everything)] == found


def test_a_record_outside_transactions_is_visible_to_readers_of_committed_records() -> None:
    everything = {P: [(0, b"a"), (1, b"b")]}
    violations = two_writes().violations({P: [(0, b"a")]}, everything)
    assert [violation.split(":")[0] for violation in violations] == ["hidden"]


def test_a_commit_that_goes_back_is_noticed() -> None:
    history = two_writes()
    history.commit("g", P, 2)
    history.see_commit("g", P, 2, at_least=2)
    assert history.conflicts == []
    history.see_commit("g", P, 1, at_least=2)
    assert kinds(history, b"a", b"b") == ["commit went back"]


def test_a_group_that_was_not_given_a_record_is_noticed() -> None:
    history = two_writes()
    history.see(P, 0, b"a", group="g")
    assert len(history.undelivered("g", {P: [(0, b"a"), (1, b"b")]})) == 1
