"""Nobody takes all of the memory, and what has begun can be finished."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from flymq.gateways.budget import BufferBudget, Share

MB = 1 << 20


def reserve(budget: BufferBudget, owner: str, count: int) -> tuple[Share, list[str]]:
    """Ask for memory; the list has an entry once it is granted."""
    share, granted = budget.share(owner), list[str]()
    if share.reserve(count, lambda: granted.append("later")):
        granted.append("at once")
    return share, granted


def test_one_owner_gets_a_third_and_others_still_find_memory() -> None:
    budget = BufferBudget(300 * MB)
    greedy = [reserve(budget, "10.0.0.1", 10 * MB)[1] for _ in range(30)]
    assert greedy.count(["at once"]) == 10
    for number in range(2, 6):
        assert reserve(budget, f"10.0.0.{number}", MB)[1] == ["at once"]


def test_five_unfinished_requests_of_63_mib_leave_memory_for_others_at_the_same_address() -> None:
    budget = BufferBudget(256 * MB)
    asked = [reserve(budget, "127.0.0.1", 63 * MB)[1] for _ in range(5)]
    assert asked == [["at once"], [], [], [], []]
    assert reserve(budget, "127.0.0.1", 16 * MB)[1] == ["at once"]


def test_large_requests_of_honest_clients_take_their_turns_and_all_are_received() -> None:
    budget = BufferBudget(256 * MB)
    asked = [reserve(budget, "127.0.0.1", 63 * MB) for _ in range(5)]
    for share, granted in asked:
        assert granted
        share.release()
    assert budget.used == 0
    assert not budget.is_short
    assert budget.waits == 4


def test_a_request_as_large_as_the_budget_is_received_alone() -> None:
    budget = BufferBudget(MB)
    first, granted = reserve(budget, "a", MB)
    assert granted == ["at once"]
    second, waits = reserve(budget, "b", MB)
    assert waits == []
    assert budget.is_short
    first.release()
    assert waits == ["later"]
    second.release()
    assert budget.used == 0


def test_a_connection_that_ends_while_it_waits_is_forgotten() -> None:
    budget = BufferBudget(MB)
    first, _ = reserve(budget, "a", MB)
    second, granted = reserve(budget, "b", MB)
    second.release()
    first.release()
    assert granted == []
    assert budget.used == 0


def test_a_request_that_fits_does_not_wait_behind_one_that_does_not() -> None:
    budget = BufferBudget(64 * MB)
    reserve(budget, "a", 16 * MB)
    assert reserve(budget, "b", 40 * MB)[1] == []
    assert reserve(budget, "b", MB)[1] == ["at once"]


def test_after_the_login_memory_counts_for_the_user() -> None:
    budget = BufferBudget(300 * MB)
    share, _ = reserve(budget, "10.0.0.1", 90 * MB)
    share.belongs_to("ada")
    assert reserve(budget, "ada", 60 * MB)[1] == []
    assert reserve(budget, "10.0.0.1", 60 * MB)[1] == ["at once"]


async def test_waiting_for_memory_ends_when_it_is_granted() -> None:
    budget = BufferBudget(MB)
    first, _ = reserve(budget, "a", MB)
    second = budget.share("b")
    waiting = asyncio.ensure_future(second.wait_for(MB))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.release()
    await waiting
    assert second.reserved == MB


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 64 * MB)), max_size=40), st.randoms(use_true_random=False))
def test_whatever_is_asked_for_is_granted_in_the_end_and_never_more_than_there_is(
    wanted: list[tuple[int, int]], chance: object
) -> None:
    budget = BufferBudget(64 * MB)
    asked = [reserve(budget, str(owner), count) for owner, count in wanted]
    while pending := [(share, granted) for share, granted in asked if share.reserved or not granted]:
        assert budget.used <= 64 * MB
        held = [share for share, granted in pending if granted]
        assert held, "everybody waits, and nobody has anything"
        held[chance.randrange(len(held))].release()  # type: ignore[attr-defined]
    assert budget.used == 0
