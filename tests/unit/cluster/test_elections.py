"""Who leads a partition, in words."""

from __future__ import annotations

import msgspec
import pytest

from flymq.cluster.catalog import NO_LEADER, PartitionState
from flymq.cluster.elections import (
    adapt,
    cancel_reassignment,
    change_isr,
    finish_reassignment,
    lose,
    move_away,
    prefer,
    reassign,
)
from flymq.model.errors import InvalidReplicaAssignment


def state(
    leader: int = 1, isr: list[int] | None = None, elr: list[int] | None = None, epoch: int = 5
) -> PartitionState:
    return PartitionState(leader, epoch, [1, 2, 3], isr or [1, 2, 3], elr or [])


def test_when_the_leader_dies_the_next_replica_in_sync_leads_with_a_higher_epoch() -> None:
    assert adapt(state(), {2, 3}, min_isr=1) == state(2, [2, 3], epoch=6)
    assert adapt(state(isr=[1, 3]), {2, 3}, min_isr=1) == state(3, [3], epoch=6)


def test_when_a_follower_dies_the_leader_stays() -> None:
    assert adapt(state(), {1, 3}, min_isr=1) == state(isr=[1, 3])


def test_without_a_replica_in_sync_nobody_leads_and_the_last_ones_are_remembered() -> None:
    dead = adapt(state(isr=[1]), {2, 3}, min_isr=1)
    assert dead == state(NO_LEADER, [1], epoch=6)
    assert adapt(dead, {2, 3}, min_isr=1) is dead
    assert adapt(dead, {1, 2, 3}, min_isr=1) == state(1, [1], epoch=7)


def test_only_when_asked_for_a_replica_out_of_sync_leads_and_then_alone() -> None:
    assert adapt(state(isr=[1]), {2, 3}, min_isr=1, unclean=True) == state(2, [2], epoch=6)


def test_who_leaves_when_too_few_are_in_sync_stays_eligible() -> None:
    assert change_isr(state(), [1], min_isr=2) == state(isr=[1], elr=[2, 3])
    assert change_isr(state(isr=[1, 2]), [1], min_isr=2) == state(isr=[1], elr=[2])


def test_an_eligible_replica_leads_when_nobody_in_sync_is_alive() -> None:
    assert adapt(state(isr=[1], elr=[2, 3]), {3}, min_isr=2) == state(3, [3], [1, 2], epoch=6)


def test_when_enough_are_in_sync_nobody_else_is_eligible() -> None:
    assert change_isr(state(isr=[1], elr=[2, 3]), [1, 2], min_isr=2) == state(isr=[1, 2])
    assert change_isr(state(isr=[1], elr=[2, 3]), [1], min_isr=1) == state(isr=[1]), "min.insync.replicas was lowered"


def test_a_broker_that_may_have_lost_records_is_out_of_sync_unless_it_is_the_last() -> None:
    assert lose(state(isr=[1, 2], elr=[]), {2}) == state(isr=[1])
    assert lose(state(isr=[1], elr=[2, 3]), {1, 3}) == state(isr=[2])
    last = state(isr=[1])
    assert lose(last, {1}) is last


def test_a_broker_that_stops_hands_over_what_it_leads() -> None:
    assert move_away(state(), 1, {1, 2, 3}, min_isr=1) == state(2, [2, 3], epoch=6)
    assert move_away(state(2), 1, {1, 2, 3}, min_isr=1) == state(2, [2, 3])
    alone = state(isr=[1])
    assert move_away(alone, 1, {1, 2, 3}, min_isr=1) is alone


def test_the_preferred_leader_comes_back_when_it_is_in_sync() -> None:
    assert prefer(state(2), {1, 2, 3}) == state(1, epoch=6)
    for unfit in (state(2, [2, 3]), state(1), state(NO_LEADER, [1])):
        assert prefer(unfit, {1, 2, 3}) is unfit
    assert prefer(state(2), {2, 3}).leader == 2


def moving(
    leader: int, replicas: list[int], isr: list[int], adding: list[int], removing: list[int], epoch: int = 5
) -> PartitionState:
    return PartitionState(leader, epoch, replicas, isr, [], adding, removing)


EVERYBODY = {1, 2, 3, 4, 5}


def test_a_reassignment_adds_the_new_replicas_beside_the_old_ones() -> None:
    assert reassign(state(), [4, 2], EVERYBODY) == moving(1, [4, 2, 1, 3], [2, 1, 3], [4], [1, 3])
    assert reassign(state(), [3, 2, 1], EVERYBODY) == moving(1, [3, 2, 1], [3, 2, 1], [], [])


def test_a_reassignment_ends_when_the_new_replicas_are_in_sync() -> None:
    begun = reassign(state(), [4, 2], EVERYBODY)
    assert finish_reassignment(begun, EVERYBODY, min_isr=1) is begun
    caught_up = change_isr(begun, [1, 2, 3, 4], min_isr=1)
    assert finish_reassignment(caught_up, EVERYBODY, min_isr=1) == moving(4, [4, 2], [4, 2], [], [], epoch=6)
    behind = change_isr(begun, [1, 4], min_isr=1)
    assert finish_reassignment(behind, EVERYBODY, min_isr=2) is behind, "too few would be left in sync"


def test_the_leader_stays_if_it_is_still_a_replica() -> None:
    begun = change_isr(reassign(state(), [4, 1], EVERYBODY), [1, 4], min_isr=1)
    assert finish_reassignment(begun, EVERYBODY, min_isr=1) == moving(1, [4, 1], [4, 1], [], [])


def test_fewer_replicas_need_nobody_to_catch_up() -> None:
    assert finish_reassignment(reassign(state(), [2], EVERYBODY), EVERYBODY, min_isr=2) == moving(
        2, [2], [2], [], [], epoch=6
    )


def test_a_reassignment_is_cancelled_or_replaced_without_losing_who_was_in_sync() -> None:
    begun = change_isr(reassign(state(), [4, 5], EVERYBODY), [1, 2, 4], min_isr=1)
    assert cancel_reassignment(begun, EVERYBODY).isr == [1, 2]
    other = reassign(begun, [5, 1], EVERYBODY)
    assert (other.replicas, other.adding, other.removing) == ([5, 1, 2, 3], [5], [2, 3])
    assert other.isr == [1, 2] and other.leader == 1


def test_a_reassignment_that_would_leave_nobody_in_sync_is_not_cancelled() -> None:
    begun = moving(4, [4, 1], [4], [4], [1])
    with pytest.raises(InvalidReplicaAssignment):
        cancel_reassignment(begun, EVERYBODY)


def test_a_state_of_an_older_version_has_the_same_bytes() -> None:
    old = b'{"isr":[1],"leader":1,"leader_epoch":0,"replicas":[1]}'
    assert msgspec.json.encode(msgspec.json.decode(old, type=PartitionState), order="sorted") == old
