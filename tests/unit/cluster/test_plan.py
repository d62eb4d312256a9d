"""What the controller does to a partition, in words."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from msgspec.structs import replace

from flymq.cluster.catalog import NO_LEADER, PartitionState, TopicSpec
from flymq.cluster.image import Topic
from flymq.cluster.plan import Roster, plan_partition
from flymq.model.delivery import Persistence
from flymq.model.topic_config import TopicConfig


def roster(live: Collection[int], joining: Collection[int] = (), lossy: Collection[int] = ()) -> Roster:
    return Roster(
        live=frozenset(live),
        draining=frozenset(),
        lossy={Persistence.DISK: frozenset(lossy)},
        joining={broker: 100 + broker for broker in joining},
        epochs={broker: 50 + broker for broker in live},
        failed={},
        racks={broker: f"rack {broker % 2}" for broker in live},
    )


def topic(state: PartitionState, name: str = "orders", **settings: str) -> Topic:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Topic(name, TopicSpec(UUID(int=1), 1), TopicConfig().for_topic(named), (state,))


LAST = PartitionState(2, 0, [2, 1], [2])


def test_nothing_is_given_up_while_the_last_replica_in_sync_is_joining() -> None:
    willing = topic(LAST, unclean_leader_election_enable="true")
    offline = replace(LAST, leader=NO_LEADER, leader_epoch=1)
    assert plan_partition(willing, 0, roster({1}, joining={2})) == offline
    assert plan_partition(topic(LAST), 0, roster({1})) == offline
    assert plan_partition(willing, 0, roster({1})) == PartitionState(1, 1, [2, 1], [1])


def test_a_partition_whose_brokers_all_live_is_left_alone() -> None:
    state = PartitionState(1, 3, [1, 2], [1, 2])
    assert plan_partition(topic(state), 0, roster({1, 2})) is state


def test_what_was_adapted_needs_no_further_change() -> None:
    for live in ({1}, {2}, {3}, {1, 2}, {2, 3}, set()):
        for isr in ([1, 2, 3], [1, 2], [3]):
            who = roster(live, joining={1, 2, 3} - live, lossy={1, 2, 3} - live)
            once = plan_partition(topic(PartitionState(isr[0], 0, [1, 2, 3], isr)), 0, who)
            assert plan_partition(topic(once), 0, who) is once


def test_an_internal_topic_gets_replicas_when_there_are_brokers_for_them() -> None:
    alone = PartitionState(1, 0, [1], [1])
    assert plan_partition(topic(alone, "__offsets"), 0, roster({1})) is alone
    assert plan_partition(topic(alone), 0, roster({1, 2, 3})) is alone
    grown = plan_partition(topic(alone, "__offsets"), 0, roster({1, 2, 3, 4, 5}))
    assert grown == PartitionState(1, 0, [1, 2, 3], [1], [], [2, 3], []), "another rack first"
    assert plan_partition(topic(grown, "__offsets"), 0, roster({1, 2, 3, 4, 5})) is grown
    full = PartitionState(1, 0, [1, 2, 3], [1, 2, 3])
    assert plan_partition(topic(full, "__offsets"), 0, roster({1, 2, 3, 4, 5})) is full
