"""Every way to share out gives each partition to one member that wants it, evenly, and quickly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.coordination.assignors import (
    ASSIGNORS,
    Assignments,
    Wish,
    assign_cooperative_sticky,
    assign_range,
    assign_roundrobin,
    assign_sticky,
)
from flymq.model.names import TopicPartition

topics = st.sampled_from(["a", "b", "c"])
counts = st.dictionaries(topics, st.integers(0, 7))
wishes = st.dictionaries(st.sampled_from("mnopq"), st.builds(Wish, st.sets(topics, min_size=1)), min_size=1)
EAGER = ["range", "roundrobin", "sticky"]


def all_wanted(wanted: dict[str, Wish], partition_counts: dict[str, int]) -> set[TopicPartition]:
    return {
        TopicPartition(topic, number)
        for topic, count in partition_counts.items()
        for number in range(count)
        if any(topic in wish.topics for wish in wanted.values())
    }


def flatten(shares: Assignments) -> list[TopicPartition]:
    return [partition for share in shares.values() for partition in share]


@pytest.mark.parametrize("name", EAGER)
@given(wanted=wishes, partition_counts=counts)
def test_each_partition_goes_to_exactly_one_member_that_wants_it(
    name: str, wanted: dict[str, Wish], partition_counts: dict[str, int]
) -> None:
    shares = ASSIGNORS[name](wanted, partition_counts)
    given_out = flatten(shares)
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == all_wanted(wanted, partition_counts)
    assert all(partition.topic in wanted[member].topics for member, share in shares.items() for partition in share)


@given(member_count=st.integers(1, 9), partition_counts=counts)
def test_shares_of_equal_wishes_differ_by_one_at_most(member_count: int, partition_counts: dict[str, int]) -> None:
    wanted = {f"m{number}": Wish({"a", "b", "c"}) for number in range(member_count)}
    for assign in (assign_roundrobin, assign_sticky):
        sizes = [len(share) for share in assign(wanted, partition_counts).values()]
        assert max(sizes) - min(sizes) <= 1
    for topic, count in partition_counts.items():
        sizes = [len(share) for share in assign_range(wanted, {topic: count}).values()]
        assert max(sizes) - min(sizes) <= 1


@given(wanted=wishes, partition_counts=counts)
def test_no_single_move_would_make_sticky_shares_more_even(
    wanted: dict[str, Wish], partition_counts: dict[str, int]
) -> None:
    shares = assign_sticky(wanted, partition_counts)
    for share in shares.values():
        for partition in share:
            for other, theirs in shares.items():
                if partition.topic in wanted[other].topics:
                    assert len(share) - len(theirs) <= 1


@given(before=st.integers(1, 8), joining=st.integers(0, 3), leaving=st.integers(0, 3), count=st.integers(0, 40))
def test_sticky_moves_no_more_than_it_must(before: int, joining: int, leaving: int, count: int) -> None:
    first = assign_sticky({f"m{number}": Wish({"a"}) for number in range(before)}, {"a": count})
    staying = {member: share for at, (member, share) in enumerate(first.items()) if at >= min(leaving, before - 1)}
    wanted = {member: Wish({"a"}, share) for member, share in staying.items()}
    wanted |= {f"new{number}": Wish({"a"}) for number in range(joining)}
    second = assign_sticky(wanted, {"a": count})
    least, more = divmod(count, len(wanted))
    # Who keeps one more than the least may be anybody: in the best case those who have most.
    kept = sum(len(set(share) & set(second[member])) for member, share in staying.items())
    room = sorted((len(share) for share in staying.values()), reverse=True)
    best = sum(min(size, least + (at < more)) for at, size in enumerate(room))
    assert kept == best


@given(wanted=wishes, partition_counts=counts, data=st.data())
def test_cooperative_sticky_gives_nobody_what_another_still_holds(
    wanted: dict[str, Wish], partition_counts: dict[str, int], data: st.DataObject
) -> None:
    everything = sorted(all_wanted(wanted, partition_counts))
    for wish in wanted.values():
        if everything:
            wish.owned = data.draw(st.lists(st.sampled_from(everything), unique=True))
    # Whoever must let go of something joins again, so there is another round. Giving out what was held back can make
    # another partition move; hence rounds, and not one more round.
    for _round in range(10):
        shares = assign_cooperative_sticky(wanted, partition_counts)
        for member, share in shares.items():
            held_by_others = {name for other, wish in wanted.items() if other != member for name in wish.owned}
            assert not held_by_others & set(share)
        lets_go = any(set(wish.owned) - set(shares[member]) for member, wish in wanted.items())
        for member, wish in wanted.items():
            wish.owned = shares[member]
        if not lets_go:
            break
    assert not lets_go, "the rounds go on"
    assert set(flatten(shares)) == set(everything)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_hundred_members_share_a_thousand_partitions_at_once(name: str) -> None:
    """No quadratic blow-up: counted in steps, not in time, which a busy machine stretches."""
    steps = 0

    class Counting(set[str]):
        def __contains__(self, item: object) -> bool:
            nonlocal steps
            steps += 1
            return super().__contains__(item)

    wanted = {f"m{number:03}": Wish(Counting({"a", "b"})) for number in range(100)}
    shares = ASSIGNORS[name](wanted, {"a": 500, "b": 500})
    assert sorted(map(len, shares.values())) == [10] * 100
    assert steps <= 200_000
