"""Where replicas are placed."""

from __future__ import annotations

from collections import Counter

import pytest

from flymq.cluster.placement import check_placed, place, resize
from flymq.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor

NO_RACKS = dict.fromkeys((1, 2, 3), "")


def test_leaders_and_replicas_are_spread_evenly() -> None:
    placed = place(NO_RACKS, 12, 2)
    assert Counter(replicas[0] for replicas in placed) == {1: 4, 2: 4, 3: 4}
    assert Counter(broker for replicas in placed for broker in replicas) == {1: 8, 2: 8, 3: 8}


def test_the_partitions_of_a_broker_that_fails_are_taken_over_by_all_others() -> None:
    placed = place(dict.fromkeys(range(5), ""), 40, 3)
    heirs = Counter(replicas[1] for replicas in placed if replicas[0] == 0)
    assert set(heirs) == {1, 2, 3, 4}
    assert max(heirs.values()) - min(heirs.values()) <= 1


def test_replicas_lie_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    for replicas in place(racks, 30, 3):
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}
        assert len(set(replicas)) == 3
    for replicas in place(racks, 30, 5):
        assert len(set(replicas)) == 5


def test_uneven_racks_are_used_as_far_as_they_go() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    for replicas in place(racks, 12, 2):
        assert 4 in replicas


def test_later_partitions_continue_where_the_first_ended() -> None:
    assert place(NO_RACKS, 4, 2) + place(NO_RACKS, 4, 2, first=4) == place(NO_RACKS, 8, 2)


def test_another_topic_starts_at_another_broker() -> None:
    assert [place(NO_RACKS, 1, 1, start=start)[0] for start in range(3)] == [[1], [2], [3]]


def test_one_broker_holds_one_replica() -> None:
    assert place({7: ""}, 3, 1) == [[7], [7], [7]]
    with pytest.raises(InvalidReplicationFactor, match="2 replicas on 1 broker"):
        place({7: ""}, 1, 2)
    with pytest.raises(InvalidReplicationFactor, match="4 replicas on 3 brokers"):
        place(NO_RACKS, 1, 4)


@pytest.mark.parametrize(
    ("placed", "problem"),
    [
        ([[1, 9]], "there is no broker 9"),
        ([[2, 2]], "names a broker twice"),
        ([[1, 2], [3]], "as many, here 2"),
        ([[1, 2], []], "as many, here 2"),
    ],
)
def test_replicas_that_a_client_places_where_they_cannot_be_are_refused(placed: list[list[int]], problem: str) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=problem):
        check_placed(placed, {1, 2, 3}, 2)
    check_placed([[1, 2], [3, 1]], {1, 2, 3}, 2)


def test_more_replicas_are_added_evenly_and_those_in_place_stay() -> None:
    placed = resize([[1]] * 6, {1: "", 2: "", 3: "", 4: ""}, 2)
    assert all(1 in replicas and len(replicas) == 2 for replicas in placed)
    assert Counter(broker for replicas in placed for broker in replicas) == {1: 6, 2: 2, 3: 2, 4: 2}
    assert max(Counter(replicas[0] for replicas in placed).values()) == 2, "leaders are spread"


def test_replicas_that_are_added_go_to_other_racks_first() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "c"}
    for replicas in resize([[1], [2], [3]], racks, 3):
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}


def test_fewer_replicas_leave_the_brokers_that_have_most_and_those_that_are_away() -> None:
    assert resize([[1, 2], [1, 3], [1, 4]], {1: "", 2: "", 3: "", 4: ""}, 1) == [[2], [3], [1]]
    assert resize([[9, 1]], {1: "", 2: ""}, 1, away={9}) == [[1]]


def test_a_replica_on_a_broker_that_is_away_stays_and_no_other_comes_to_it() -> None:
    assert resize([[9, 1], [1]], {1: "", 2: ""}, 2, away={9}) == [[1, 9], [2, 1]]


def test_a_topic_moves_to_other_brokers() -> None:
    assert resize([[1, 2], [2, 1]], {3: "", 4: ""}, 2) == [[3, 4], [4, 3]]


def test_more_replicas_than_brokers_are_refused_for_topics_that_exist() -> None:
    with pytest.raises(InvalidReplicationFactor, match="3 replicas on 2 brokers"):
        resize([[1]], {1: "", 2: ""}, 3)
