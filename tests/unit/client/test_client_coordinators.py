"""Requests of groups and transactions go to their coordinators, and to the new one after a coordinator has moved."""

from collections.abc import Callable

import pytest
from tests.unit.client.fake_brokers import FakeBrokers

from flymq.client.aio.admin import AsyncAdmin
from flymq.client.aio.cluster import Cluster
from flymq.client.aio.coordinators import GROUP, TRANSACTION
from flymq.model.errors import (
    ConnectionLost,
    CoordinatorLoading,
    FlyMQError,
    NotCoordinator,
    RebalanceInProgress,
)
from flymq.wire.native.messages.fields import Failure, Message
from flymq.wire.native.messages.groups import (
    Commit,
    CommitAnswer,
    DeleteGroup,
    DescribeGroupAnswer,
    FindCoordinator,
    GroupPosition,
    GroupSummary,
    Heartbeat,
    ListGroupsAnswer,
    OffsetCommitted,
    OffsetToCommit,
    ResetOffsets,
    ResetOffsetsAnswer,
)
from flymq.wire.native.messages.records import AT_EARLIEST, ListOffsets, ListOffsetsAnswer, OffsetFound
from flymq.wire.native.messages.session import Done
from flymq.wire.native.messages.topics import DescribeTopicAnswer, PartitionDescription
from flymq.wire.native.messages.transactions import BeginTxn, CommitAttempts
from flymq.wire.native.opcodes import Opcode

_BEAT = Heartbeat(group="g", member="m", generation=1)


async def _beat(cluster: Cluster) -> None:
    await cluster.coordinators.ask(GROUP, "g", _BEAT, Done)


def _coordinated_by(count: int, coordinator: int, answer: Callable[[int, Message], Message | FlyMQError | None]):
    brokers = FakeBrokers(count, answer)
    brokers.coordinators[GROUP, "g"] = coordinator
    return brokers


async def test_a_coordinator_is_looked_up_once():
    brokers = _coordinated_by(3, 2, lambda *_: Done())
    async with brokers.cluster() as cluster:
        await _beat(cluster)
        await _beat(cluster)
    assert brokers.asked_of(Heartbeat) == [2, 2]
    assert brokers.asked_of(FindCoordinator) == [0]


async def test_a_broker_that_coordinates_no_longer_sends_the_client_to_the_next():
    def answer(broker: int, _: Message) -> Message | FlyMQError:
        if broker == brokers.coordinators[GROUP, "g"]:
            return Done()
        return NotCoordinator()

    brokers = _coordinated_by(3, 2, answer)
    async with brokers.cluster() as cluster:
        await _beat(cluster)
        brokers.coordinators[GROUP, "g"] = 1
        await _beat(cluster)
    assert brokers.asked_of(Heartbeat) == [2, 2, 1]


async def test_a_coordinator_that_was_killed_is_replaced_without_an_error():
    brokers = _coordinated_by(3, 2, lambda *_: Done())
    async with brokers.cluster() as cluster:
        await _beat(cluster)
        brokers.kill(2)
        brokers.coordinators[GROUP, "g"] = 1
        await _beat(cluster)
    assert brokers.asked_of(Heartbeat)[-1] == 1


async def test_a_coordinator_that_went_silent_is_replaced_without_an_error():
    brokers = _coordinated_by(3, 2, lambda *_: Done())
    async with brokers.cluster(request_timeout_ms=3_600_000) as cluster:
        await _beat(cluster)
        brokers.silent.add(2)
        brokers.coordinators[GROUP, "g"] = 1
        await _beat(cluster)  # would wait for an hour
    assert brokers.asked_of(Heartbeat) == [2, 2, 1]


async def test_a_coordinator_that_loads_is_asked_again():
    answers: list[Message | FlyMQError] = [CoordinatorLoading(), CoordinatorLoading(), Done()]
    brokers = _coordinated_by(2, 1, lambda *_: answers.pop(0))
    async with brokers.cluster() as cluster:
        await _beat(cluster)
    assert brokers.asked_of(Heartbeat) == [1, 1, 1]
    assert brokers.asked_of(FindCoordinator) == [0]


async def test_a_rebalance_is_for_the_member_to_handle():
    brokers = _coordinated_by(2, 1, lambda *_: RebalanceInProgress())
    async with brokers.cluster() as cluster:
        with pytest.raises(RebalanceInProgress):
            await _beat(cluster)
    assert brokers.asked_of(Heartbeat) == [1]


async def test_a_commit_that_failed_in_one_partition_because_the_coordinator_moved_is_repeated():
    def answer(broker: int, _: Message) -> Message:
        error = None if broker == 1 else Failure.of(NotCoordinator())
        brokers.coordinators[GROUP, "g"] = 1
        return CommitAnswer(partitions=[OffsetCommitted("orders", 0, error)])

    brokers = _coordinated_by(2, 0, answer)
    async with brokers.cluster() as cluster:
        commit = Commit(group="g", offsets=[OffsetToCommit("orders", 0, 7)])
        await cluster.coordinators.ask(GROUP, "g", commit, CommitAnswer)
    assert brokers.asked_of(Commit) == [0, 1]


async def test_what_may_have_been_done_is_not_done_again():
    def answer(broker: int, request: Message) -> Message | FlyMQError | None:
        if len(brokers.asked_of(DeleteGroup)) == 1:
            return NotCoordinator()
        brokers.kill(broker)
        return None

    brokers = _coordinated_by(2, 1, answer)
    async with brokers.cluster() as cluster:
        with pytest.raises(ConnectionLost):
            await cluster.coordinators.tell(GROUP, "g", DeleteGroup(group="g"), Done)
    assert brokers.asked_of(DeleteGroup) == [1, 1]


async def test_a_broker_that_knows_no_coordinators_is_asked_itself():
    opcodes = tuple(opcode for opcode in Opcode if opcode is not Opcode.FIND_COORDINATOR)
    brokers = FakeBrokers(1, lambda *_: Done(), opcodes=opcodes)
    async with brokers.cluster() as cluster:
        await _beat(cluster)
    assert brokers.asked_of(Heartbeat) == [0]
    assert brokers.asked_of(FindCoordinator) == []


async def test_all_attempts_of_a_query_have_its_coordinator_and_it_is_looked_up_once():
    brokers = FakeBrokers(2, lambda *_: Done())
    brokers.coordinators[TRANSACTION, "query:0:0"] = 1
    async with brokers.cluster() as cluster:
        for task in range(3):
            name = f"query:0:{task}"
            begin = BeginTxn(transactional_id=name, producer_id=1, producer_epoch=0)
            await cluster.coordinators.ask(TRANSACTION, name, begin, Done)
        await cluster.coordinators.ask(TRANSACTION, "query", CommitAttempts(query="query", batch=0), Done)
    assert brokers.asked_of(BeginTxn) == [1, 1, 1]
    assert brokers.asked_of(CommitAttempts) == [1]
    assert brokers.asked_of(FindCoordinator) == [0]


async def test_groups_of_all_brokers_are_listed():
    def answer(broker: int, _: Message) -> Message:
        return ListGroupsAnswer(groups=[GroupSummary(f"group-{2 - broker}", "stable", 1)])

    brokers = FakeBrokers(3, answer)
    async with brokers.cluster() as cluster:
        listed = await AsyncAdmin(cluster).list_groups()
    assert [group.name for group in listed] == ["group-0", "group-1", "group-2"]


async def test_a_reset_finds_the_offsets_at_the_leaders_and_commits_them_at_the_coordinator():
    def answer(broker: int, request: Message) -> Message:
        match request:
            case ListOffsets():
                return ListOffsetsAnswer(partitions=[OffsetFound("orders", 0, 7, leader_epoch=3)])
            case ResetOffsets():
                assert request.validate_only and not request.partitions
                return ResetOffsetsAnswer(partitions=[])
        assert isinstance(request, Commit)
        assert request.offsets == [OffsetToCommit("orders", 0, 7, 3)]
        return CommitAnswer(partitions=[OffsetCommitted("orders", 0)])

    brokers = _coordinated_by(3, 2, answer)
    brokers.leaders = [(1, 3)]
    async with brokers.cluster() as cluster:
        assert await AsyncAdmin(cluster).reset_offsets("g", "orders", "latest") == {("orders", 0): 7}
    assert brokers.asked_of(ListOffsets) == [1]
    assert brokers.asked_of(ResetOffsets) == [2]
    assert brokers.asked_of(Commit) == [2]


async def test_lag_in_partitions_that_the_coordinator_does_not_have_is_found_at_their_leaders():
    def answer(broker: int, request: Message) -> Message:
        if isinstance(request, ListOffsets):
            return ListOffsetsAnswer(partitions=[OffsetFound("orders", 0, 10)])
        positions = [GroupPosition("orders", 0, offset=7)]
        return DescribeGroupAnswer(group="g", state="empty", positions=positions)

    brokers = _coordinated_by(3, 2, answer)
    brokers.leaders = [(1, 0)]
    async with brokers.cluster() as cluster:
        [position] = (await AsyncAdmin(cluster).describe_group("g")).positions
    assert (position.end_offset, position.lag) == (10, 3)


async def test_offsets_of_partitions_that_the_broker_does_not_have_are_found_at_their_leaders():
    def answer(broker: int, request: Message) -> Message:
        if isinstance(request, ListOffsets):
            offset = 2 if request.partitions[0].at == AT_EARLIEST else 10
            return ListOffsetsAnswer(partitions=[OffsetFound("orders", 0, offset)])
        elsewhere = PartitionDescription(0, leader=1, start_offset=-1, end_offset=-1)
        return DescribeTopicAnswer(topic="orders", partitions=[elsewhere])

    brokers = FakeBrokers(2, answer)
    brokers.leaders = [(1, 0)]
    async with brokers.cluster() as cluster:
        [partition] = (await AsyncAdmin(cluster).describe_topic("orders")).partitions
    assert (partition.start_offset, partition.end_offset) == (2, 10)
    assert brokers.asked_of(ListOffsets) == [1, 1]
