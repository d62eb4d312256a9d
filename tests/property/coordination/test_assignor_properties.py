"""Every assignor assigns each partition to one subscriber, evenly, and quickly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.coordination.assignors import (
    ASSIGNORS,
    Assignments,
    MemberSubscription,
    assign_cooperative_sticky,
    assign_range,
    assign_roundrobin,
    assign_sticky,
)
from flymq.model.names import TopicPartition

topics = st.sampled_from(["a", "b", "c"])
counts = st.dictionaries(topics, st.integers(0, 7))
subscriptions = st.dictionaries(
    st.sampled_from("mnopq"), st.builds(MemberSubscription, st.sets(topics, min_size=1)), min_size=1
)
EAGER = ["range", "roundrobin", "sticky"]


def all_wanted(wanted: dict[str, MemberSubscription], partition_counts: dict[str, int]) -> set[TopicPartition]:
    return {
        TopicPartition(topic, number)
        for topic, count in partition_counts.items()
        for number in range(count)
        if any(topic in subscription.topics for subscription in wanted.values())
    }


def flatten(assignments: Assignments) -> list[TopicPartition]:
    return [partition for held in assignments.values() for partition in held]


@pytest.mark.parametrize("name", EAGER)
@given(wanted=subscriptions, partition_counts=counts)
def test_each_partition_goes_to_exactly_one_member_that_wants_it(
    name: str, wanted: dict[str, MemberSubscription], partition_counts: dict[str, int]
) -> None:
    assignments = ASSIGNORS[name](wanted, partition_counts)
    given_out = flatten(assignments)
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == all_wanted(wanted, partition_counts)
    assert all(partition.topic in wanted[member].topics for member, held in assignments.items() for partition in held)


@given(member_count=st.integers(1, 9), partition_counts=counts)
def test_assignments_of_equal_subscriptions_differ_by_one(member_count: int, partition_counts: dict[str, int]) -> None:
    wanted = {f"m{number}": MemberSubscription({"a", "b", "c"}) for number in range(member_count)}
    for assign in (assign_roundrobin, assign_sticky):
        sizes = [len(held) for held in assign(wanted, partition_counts).values()]
        assert max(sizes) - min(sizes) <= 1
    for topic, count in partition_counts.items():
        sizes = [len(held) for held in assign_range(wanted, {topic: count}).values()]
        assert max(sizes) - min(sizes) <= 1


@given(wanted=subscriptions, partition_counts=counts)
def test_no_single_move_would_make_sticky_assignments_more_even(
    wanted: dict[str, MemberSubscription], partition_counts: dict[str, int]
) -> None:
    assignments = assign_sticky(wanted, partition_counts)
    for held in assignments.values():
        for partition in held:
            for other, theirs in assignments.items():
                if partition.topic in wanted[other].topics:
                    assert len(held) - len(theirs) <= 1


@given(before=st.integers(1, 8), joining=st.integers(0, 3), leaving=st.integers(0, 3), count=st.integers(0, 40))
def test_sticky_moves_no_more_than_it_must(before: int, joining: int, leaving: int, count: int) -> None:
    first = assign_sticky({f"m{number}": MemberSubscription({"a"}) for number in range(before)}, {"a": count})
    staying = {member: held for at, (member, held) in enumerate(first.items()) if at >= min(leaving, before - 1)}
    wanted = {member: MemberSubscription({"a"}, held) for member, held in staying.items()}
    wanted |= {f"new{number}": MemberSubscription({"a"}) for number in range(joining)}
    second = assign_sticky(wanted, {"a": count})
    least, more = divmod(count, len(wanted))
    # Who keeps one more than the least may be anybody: in the best case those who have most.
    kept = sum(len(set(held) & set(second[member])) for member, held in staying.items())
    room = sorted((len(held) for held in staying.values()), reverse=True)
    best = sum(min(size, least + (at < more)) for at, size in enumerate(room))
    assert kept == best


@given(wanted=subscriptions, partition_counts=counts, data=st.data())
def test_cooperative_sticky_gives_nobody_what_another_still_holds(
    wanted: dict[str, MemberSubscription], partition_counts: dict[str, int], data: st.DataObject
) -> None:
    everything = sorted(all_wanted(wanted, partition_counts))
    for subscription in wanted.values():
        if everything:
            subscription.owned = data.draw(st.lists(st.sampled_from(everything), unique=True))
    # A member that has to revoke partitions rejoins, so there is another round. Giving out what was held back can make
    # another partition move; hence rounds, and not one more round.
    for _round in range(10):
        assignments = assign_cooperative_sticky(wanted, partition_counts)
        for member, held in assignments.items():
            held_by_others = {
                name for other, subscription in wanted.items() if other != member for name in subscription.owned
            }
            assert not held_by_others & set(held)
        revokes = any(set(subscription.owned) - set(assignments[member]) for member, subscription in wanted.items())
        for member, subscription in wanted.items():
            subscription.owned = assignments[member]
        if not revokes:
            break
    assert not revokes, "the rounds go on"
    assert set(flatten(assignments)) == set(everything)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_hundred_members_are_assigned_a_thousand_partitions_at_once(name: str) -> None:
    """No quadratic blow-up: counted in steps, not in time, which a busy machine stretches."""
    steps = 0

    class Counting(set[str]):
        def __contains__(self, item: object) -> bool:
            nonlocal steps
            steps += 1
            return super().__contains__(item)

    wanted = {f"m{number:03}": MemberSubscription(Counting({"a", "b"})) for number in range(100)}
    assignments = ASSIGNORS[name](wanted, {"a": 500, "b": 500})
    assert sorted(map(len, assignments.values())) == [10] * 100
    assert steps <= 200_000
