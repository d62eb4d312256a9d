"""Consumer groups over the wire, as a client without an SDK would use them."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.raw_client import RawClient

from flymq.model.coordinators import CoordinatorKind
from flymq.testing import TestBroker, running_broker
from flymq.wire.native.codec import encode_request
from flymq.wire.native.messages import groups
from flymq.wire.native.messages.fields import Message, PartitionRef, TopicPartitions
from flymq.wire.native.messages.records import AT_EARLIEST, AT_LATEST, OffsetQuery, Produce
from flymq.wire.native.messages.session import Done, ErrorAnswer, Hello
from flymq.wire.native.messages.topics import AddPartitions, CreateTopic, DeleteTopic


def ask(client: RawClient, request: Message) -> Any:
    answer = client.ask(request)
    assert not isinstance(answer, ErrorAnswer), f"{answer.code}: {answer.message}"
    return answer


def refused(client: RawClient, request: Message) -> str:
    answer = client.ask(request)
    assert isinstance(answer, ErrorAnswer), answer
    return answer.code


def join(client: RawClient, group: str = "readers", topics: tuple[str, ...] = ("orders",), **more: Any) -> Any:
    return ask(client, groups.Subscribe(group=group, topics=list(topics), **more))


def sync(client: RawClient, joined: groups.SubscribeAnswer, group: str = "readers") -> dict[str, list[int]]:
    answer = ask(client, groups.Sync(group=group, member=joined.member, generation=joined.generation))
    return {part.topic: list(part.partitions) for part in answer.partitions}


def commit(client: RawClient, joined: groups.SubscribeAnswer, offset: int, group: str = "readers") -> Message:
    return client.ask(
        groups.Commit(
            group=group,
            offsets=[groups.OffsetToCommit("orders", 0, offset, metadata="seen")],
            member=joined.member,
            generation=joined.generation,
        )
    )


def committed(client: RawClient, group: str = "readers") -> dict[tuple[str, int], int]:
    answer = ask(client, groups.FetchOffsets(group=group))
    return {(part.topic, part.partition): part.offset for part in answer.partitions}


@pytest.fixture
def orders(client: RawClient) -> RawClient:
    ask(client, CreateTopic(topic="orders", partitions=4))
    return client


@pytest.fixture
def second(flymq_broker: TestBroker) -> Any:
    other = RawClient(flymq_broker.port)
    other.socket.settimeout(20)
    yield other
    other.close()


def test_a_lonely_member_gets_every_partition_and_commits(orders: RawClient) -> None:
    joined = join(orders)
    assert joined.generation == 1
    assert sync(orders, joined) == {"orders": [0, 1, 2, 3]}
    assert ask(orders, groups.Heartbeat(group="readers", member=joined.member, generation=1)) == Done()
    assert commit(orders, joined, 7) == groups.CommitAnswer(partitions=[groups.OffsetCommitted("orders", 0)])
    answer = ask(
        orders, groups.FetchOffsets(group="readers", partitions=[PartitionRef("orders", 0), PartitionRef("orders", 1)])
    )
    assert answer.partitions == [
        groups.CommittedOffset("orders", 0, 7, -1, "seen"),
        groups.CommittedOffset("orders", 1),
    ]


def test_a_second_member_makes_the_group_rebalance(orders: RawClient, second: RawClient) -> None:
    first = join(orders)
    sync(orders, first)
    second.socket.sendall(encode_request(groups.Subscribe(group="readers", topics=["orders"])))
    while refused_or_done(orders, first) != "REBALANCE_IN_PROGRESS":
        pass
    again = join(orders, member=first.member)
    other = second.receive()
    assert isinstance(other, groups.SubscribeAnswer)
    assert again.generation == other.generation == 2
    assigned = [sync(orders, again)["orders"], sync(second, other)["orders"]]
    assert sorted(assigned[0] + assigned[1]) == [0, 1, 2, 3]
    assert len(assigned[0]) == len(assigned[1]) == 2


def test_a_commit_from_an_ended_generation_is_refused_and_changes_nothing(orders: RawClient) -> None:
    joined = join(orders)
    sync(orders, joined)
    commit(orders, joined, 3)
    again = join(orders, member=joined.member, assignors=["roundrobin"])
    assert again.generation == 2
    answer = commit(orders, joined, 9)
    assert isinstance(answer, ErrorAnswer)
    assert answer.code == "STALE_GENERATION"
    assert committed(orders) == {("orders", 0): 3}


def test_nobody_commits_from_outside_while_the_group_has_members(orders: RawClient) -> None:
    joined = join(orders)
    outside = groups.Commit(group="readers", offsets=[groups.OffsetToCommit("orders", 0, 5)])
    assert refused(orders, outside) == "UNKNOWN_MEMBER"
    ask(orders, groups.Leave(group="readers", member=joined.member))
    assert ask(orders, outside).partitions == [groups.OffsetCommitted("orders", 0)]


def test_a_commit_names_the_partitions_that_are_not_there(orders: RawClient) -> None:
    answer = ask(
        orders,
        groups.Commit(
            group="readers",
            offsets=[groups.OffsetToCommit("orders", 9, 1), groups.OffsetToCommit("orders", 1, 1)],
        ),
    )
    assert [part.error and part.error.code for part in answer.partitions] == ["PARTITION_NOT_FOUND", None]
    assert committed(orders) == {("orders", 1): 1}


def test_new_partitions_are_assigned(orders: RawClient) -> None:
    joined = join(orders)
    sync(orders, joined)
    ask(orders, AddPartitions(topic="orders", partitions=6))
    heartbeat = groups.Heartbeat(group="readers", member=joined.member, generation=joined.generation)
    assert refused(orders, heartbeat) == "REBALANCE_IN_PROGRESS"
    assert sync(orders, join(orders, member=joined.member)) == {"orders": [0, 1, 2, 3, 4, 5]}


def test_the_offsets_of_a_deleted_topic_are_forgotten(orders: RawClient) -> None:
    ask(orders, groups.Commit(group="readers", offsets=[groups.OffsetToCommit("orders", 0, 5)]))
    ask(orders, DeleteTopic(topic="orders"))
    ask(orders, CreateTopic(topic="orders", partitions=4))
    assert committed(orders) == {}


def test_members_go_on_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    with running_broker(data_dir=tmp_path) as broker:
        client = RawClient(broker.port)
        ask(client, CreateTopic(topic="orders", partitions=2))
        joined = join(client)
        assert sync(client, joined) == {"orders": [0, 1]}
        commit(client, joined, 11)
        client.close()
    with running_broker(data_dir=tmp_path) as broker:
        client = RawClient(broker.port)
        assert committed(client) == {("orders", 0): 11}
        assert ask(client, groups.Heartbeat(group="readers", member=joined.member, generation=1)) == Done()
        assert sync(client, joined) == {"orders": [0, 1]}
        assert isinstance(commit(client, joined, 12), groups.CommitAnswer)
        client.close()


def test_a_member_that_assigns_by_itself_is_told_of_everybody(orders: RawClient) -> None:
    joined = join(orders, assignors=["by-mood"], user_data=b"cheerful")
    assert joined.assigns
    [member] = joined.members
    assert (member.member, member.topics, bytes(member.user_data)) == (joined.member, ["orders"], b"cheerful")
    assignment = groups.MemberAssignment(joined.member, [TopicPartitions("orders", [2])])
    answer = ask(
        orders,
        groups.Sync(group="readers", member=joined.member, generation=joined.generation, assignments=[assignment]),
    )
    assert answer.partitions == [TopicPartitions("orders", [2])]


def refused_or_done(client: RawClient, joined: groups.SubscribeAnswer) -> str:
    answer = client.ask(groups.Heartbeat(group="readers", member=joined.member, generation=joined.generation))
    return answer.code if isinstance(answer, ErrorAnswer) else ""


# --- administration -------------------------------------------------------------------------------------------------


def describe(client: RawClient) -> groups.DescribeGroupAnswer:
    answer = ask(client, groups.DescribeGroup(group="readers"))
    assert isinstance(answer, groups.DescribeGroupAnswer)
    return answer


def test_a_description_has_members_assignments_and_lag(orders: RawClient) -> None:
    ask(orders, Hello(client_id="till-7"))
    ask(orders, Produce(topic="orders", partition=0, value=b"old", timestamp=1_000))
    ask(orders, Produce(topic="orders", partition=0, value=b"new"))
    joined = join(orders)
    sync(orders, joined)
    commit(orders, joined, 0)
    found = describe(orders)
    assert (found.state, found.assignor, found.generation) == ("stable", "range", 1)
    [member] = found.members
    assert (member.member, member.client_id, member.host) == (joined.member, "till-7", "127.0.0.1")
    assert member.partitions == [TopicPartitions("orders", [0, 1, 2, 3])]
    behind, *others = found.positions
    assert (behind.offset, behind.end_offset, behind.lag, behind.member) == (0, 2, 2, joined.member)
    assert behind.lag_ms > 1_600_000_000_000
    assert [(other.offset, other.lag) for other in others] == [(-1, -1)] * 3
    commit(orders, joined, 2)
    assert (describe(orders).positions[0].lag, describe(orders).positions[0].lag_ms) == (0, 0)


def test_groups_are_listed_until_they_are_deleted(orders: RawClient) -> None:
    joined = join(orders)
    listed = ask(orders, groups.ListGroups()).groups
    assert listed == [groups.GroupSummary("readers", "stable", 1)]
    assert refused(orders, groups.DeleteGroup(group="readers")) == "GROUP_NOT_EMPTY"
    ask(orders, groups.Leave(group="readers", member=joined.member))
    assert ask(orders, groups.DeleteGroup(group="readers")) == Done()
    assert ask(orders, groups.ListGroups()).groups == []
    assert refused(orders, groups.DescribeGroup(group="readers")) == "GROUP_NOT_FOUND"
    assert join(orders).generation == 1


def test_a_group_without_members_is_moved_to_positions_times_and_offsets(orders: RawClient) -> None:
    for at in (1_000, 2_000, 3_000):
        ask(orders, Produce(topic="orders", partition=0, value=b"v", timestamp=at))
        ask(orders, Produce(topic="orders", partition=1, value=b"v", timestamp=at))
    reset = groups.ResetOffsets(
        group="readers",
        partitions=[
            OffsetQuery("orders", 0, 1_500),
            OffsetQuery("orders", 1, AT_LATEST),
            OffsetQuery("orders", 2, AT_EARLIEST),
            OffsetQuery("orders", 9, AT_EARLIEST),
        ],
        offsets=[groups.OffsetToCommit("orders", 3, 5)],
        validate_only=True,
    )
    tried = ask(orders, reset)
    assert [part.offset for part in tried.partitions] == [1, 3, 0, -1, -1]
    assert [part.error and part.error.code for part in tried.partitions[3:]] == [
        "PARTITION_NOT_FOUND",
        "OFFSET_OUT_OF_RANGE",
    ]
    assert committed(orders) == {}
    reset.validate_only = False
    assert ask(orders, reset).partitions == tried.partitions
    assert committed(orders) == {("orders", 0): 1, ("orders", 1): 3, ("orders", 2): 0}
    join(orders)
    assert refused(orders, reset) == "GROUP_NOT_EMPTY"


@pytest.mark.parametrize("kind", CoordinatorKind)
def test_a_client_finds_the_coordinator_of_a_group_or_a_transaction(
    flymq_broker: TestBroker, client: RawClient, kind: CoordinatorKind
) -> None:
    found = ask(client, groups.FindCoordinator(kind=kind, key="readers"))
    assert (found.broker, found.host, found.port) == (0, "127.0.0.1", flymq_broker.port)
