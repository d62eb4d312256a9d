"""One replica: who may write and read it in which role, and how much of it each reader sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest
from tests.unit.storage.batches import batch, idempotent, open_simulated, settings

from flymq.broker.replicas.fetching import Fetches, FetchFrom, FetchQuery, PendingFetch
from flymq.broker.replicas.partition import Partition, PartitionRead, Role, View
from flymq.host.clock import ManualClock
from flymq.host.tasks import Tasks, run_steps_here
from flymq.model.delivery import Acks
from flymq.model.errors import (
    FencedLeaderEpoch,
    InvalidBatch,
    InvalidTransactionState,
    NotLeader,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from flymq.model.names import TopicPartition
from flymq.record.control import Marker, MarkerType
from flymq.record.header import parse_header
from flymq.record.reading import parse_records
from flymq.storage.flusher import Flusher

T = TypeVar("T")
NAME = TopicPartition("orders", 0)
ABORT = Marker(MarkerType.ABORT, 9, 0, 0, 1_700_000_000_000)
COMMIT = Marker(MarkerType.COMMIT, 9, 0, 0, 1_700_000_000_000)


class HeldThreads:
    """A disk that answers when it is let."""

    def __init__(self) -> None:
        self.is_free = asyncio.Event()

    async def run(self, work: Callable[[], T]) -> T:
        await self.is_free.wait()
        return work()

    def close(self) -> None:
        pass


class Replica:
    """A partition on a simulated disk, whose fsyncs wait for `disk`."""

    def __init__(self, persistence: str) -> None:
        self.disk = HeldThreads()
        self.tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error}"))
        self.simulated_disk, self.log = open_simulated(settings(persistence=persistence))
        flusher = Flusher(self.disk, self.tasks, lambda error: pytest.fail(str(error)))
        self.partition = Partition(NAME, self.log, flusher=flusher, clock=ManualClock())

    def read(self, view: View, offset: int = 0) -> list[bytes | None]:
        """Return the values that a reader sees."""
        read = self.partition.read(offset, bytes_max=1 << 20, view=view)
        if read.slice is None:
            return []
        return [record.value for record in parse_records(read.slice.read(), start_offset=0, aborted=read.aborted)]

    def copy(self) -> bytes:
        """Return what a follower gets."""
        found = self.partition.read(0, bytes_max=1 << 20, view=View.REPLICA).slice
        assert found is not None
        return bytes(found.read())


@pytest.fixture
async def disk_topic() -> AsyncIterator[Replica]:
    replica = Replica("disk")
    replica.disk.is_free.set()
    yield replica
    await replica.tasks.close()


@pytest.fixture
async def fsync_topic() -> AsyncIterator[Replica]:
    replica = Replica("fsync")
    yield replica
    await replica.tasks.close()


# --- roles


async def test_a_replica_follows_until_it_is_told_to_lead(disk_topic: Replica) -> None:
    assert disk_topic.partition.role is Role.FOLLOWER and not disk_topic.partition.leads


async def test_a_follower_refuses_clients_that_write_or_read(disk_topic: Replica) -> None:
    partition = disk_topic.partition
    partition.follow(3)
    for attempt in (
        lambda: partition.append(batch("a"), Acks.ALL),
        lambda: partition.append_in_transaction(idempotent(9, 0, transactional=True), Acks.ALL),
        lambda: partition.append_marker(ABORT),
        lambda: partition.read(0, bytes_max=100, view=View.COMMITTED),
        lambda: partition.read(0, bytes_max=100, view=View.REPLICA),
        lambda: run_steps_here(partition.delete_before(-1)),
        lambda: partition.check_leads(),
    ):
        with pytest.raises(NotLeader):
            attempt()
    assert disk_topic.log.end_offset == 0


async def test_a_follower_keeps_what_the_leader_has_byte_for_byte(disk_topic: Replica) -> None:
    leader = Replica("disk")
    leader.partition.lead(4)
    leader.partition.append(batch("a", "b"), Acks.LEADER)
    leader.partition.append(idempotent(9, 0, "c"), Acks.LEADER)
    disk_topic.partition.follow(4)
    disk_topic.partition.append_as_follower(leader.copy(), leader_epoch=4)
    disk_topic.partition.lead(5)
    assert disk_topic.copy() == leader.copy()
    assert disk_topic.log.producers.get(9) == leader.log.producers.get(9)
    await leader.tasks.close()


async def test_a_follower_takes_nothing_from_a_leader_of_another_epoch(disk_topic: Replica) -> None:
    leader = Replica("disk")
    leader.partition.lead(4)
    leader.partition.append(batch("a"), Acks.LEADER)
    copied = leader.copy()
    for own, sender in ((5, 4), (3, 4)):
        replica = Replica("disk")
        replica.partition.follow(own)
        with pytest.raises(NotLeader):
            replica.partition.append_as_follower(copied, leader_epoch=sender)
        assert replica.log.end_offset == 0
    await leader.tasks.close()


async def test_a_leader_takes_no_copies(disk_topic: Replica) -> None:
    leader = Replica("disk")
    leader.partition.lead(4)
    leader.partition.append(batch("a"), Acks.LEADER)
    disk_topic.partition.lead(4)
    with pytest.raises(NotLeader, match="orders-0 is a leader at epoch 4"):
        disk_topic.partition.append_as_follower(leader.copy(), leader_epoch=4)
    await leader.tasks.close()


async def test_a_follower_does_not_take_the_same_copy_twice(disk_topic: Replica) -> None:
    leader = Replica("disk")
    leader.partition.lead(4)
    leader.partition.append(batch("a"), Acks.LEADER)
    disk_topic.partition.follow(4)
    disk_topic.partition.append_as_follower(leader.copy(), leader_epoch=4)
    with pytest.raises(InvalidBatch):
        disk_topic.partition.append_as_follower(leader.copy(), leader_epoch=4)
    assert disk_topic.log.end_offset == 1
    await leader.tasks.close()


async def test_the_late_writer_of_a_former_leader_is_refused(disk_topic: Replica) -> None:
    partition = disk_topic.partition
    partition.lead(4)
    partition.append(batch("a"), Acks.LEADER)
    partition.follow(5)
    with pytest.raises(NotLeader):
        partition.append(batch("late"), Acks.LEADER)
    partition.lead(6)
    assert disk_topic.read(View.COMMITTED) == [b"a"]


async def test_records_carry_the_epoch_of_the_leader_that_wrote_them(disk_topic: Replica) -> None:
    for epoch in (4, 6):
        disk_topic.partition.lead(epoch)
        disk_topic.partition.append(batch("a"), Acks.LEADER)
    copied = disk_topic.copy()
    first = parse_header(copied)
    assert [first.leader_epoch, parse_header(copied[first.size :]).leader_epoch] == [4, 6]
    assert disk_topic.partition.end_of_epoch(5) == (4, 1)
    assert disk_topic.partition.end_of_epoch(6) == (6, 2)


async def test_a_leader_that_wrote_nothing_is_remembered_all_the_same(disk_topic: Replica) -> None:
    disk_topic.partition.lead(4)
    disk_topic.partition.append(batch("a"), Acks.LEADER)
    disk_topic.partition.lead(5)
    assert disk_topic.partition.end_of_epoch(5) == (5, 1)


async def test_a_leader_epoch_that_goes_back_is_a_bug(disk_topic: Replica) -> None:
    disk_topic.partition.lead(4)
    for change in (disk_topic.partition.lead, disk_topic.partition.follow):
        with pytest.raises(AssertionError, match="never goes back"):
            change(3)


async def test_a_client_with_an_old_leader_epoch_is_fenced_and_one_with_a_later_epoch_has_to_wait(
    disk_topic: Replica,
) -> None:
    disk_topic.partition.lead(4)
    disk_topic.partition.check_leads()
    disk_topic.partition.check_leads(4)
    with pytest.raises(FencedLeaderEpoch, match="at leader epoch 4, not 3"):
        disk_topic.partition.check_leads(3)
    with pytest.raises(UnknownLeaderEpoch, match="not yet 5"):
        disk_topic.partition.check_leads(5)


# --- readers that wait


def waiting(replica: Replica, view: View = View.COMMITTED) -> PendingFetch[list[PartitionRead]]:
    fetches = Fetches(lambda name: replica.partition)
    query = FetchQuery([FetchFrom(NAME, replica.log.end_offset, 1 << 20)], wait_ms_max=60_000, view=view)
    assert fetches.read(query) is None, "there is nothing to read yet"
    return fetches.wait(query, lambda reads: reads)


async def test_a_reader_that_waits_learns_at_once_that_another_broker_leads(disk_topic: Replica) -> None:
    disk_topic.partition.lead(4)
    fetch = waiting(disk_topic)
    disk_topic.partition.follow(5)
    (read,) = await fetch
    assert isinstance(read.error, NotLeader)


async def test_a_reader_that_waits_is_woken_by_a_record(disk_topic: Replica) -> None:
    disk_topic.partition.lead(4)
    fetch = waiting(disk_topic)
    disk_topic.partition.append(batch("a"), Acks.LEADER)
    (read,) = await fetch
    assert (read.error, read.offsets) == (None, 1)


async def test_a_reader_that_waits_in_an_fsync_topic_is_woken_by_the_disk(fsync_topic: Replica) -> None:
    fsync_topic.partition.lead(4)
    fetch = waiting(fsync_topic)
    answered: list[PendingFetch[list[PartitionRead]]] = []
    fetch.add_done_callback(answered.append)
    fsync_topic.partition.append(batch("a"), Acks.LEADER)
    await asyncio.sleep(0)
    assert not answered
    fsync_topic.disk.is_free.set()
    (read,) = await fetch
    assert read.offsets == 1


# --- views


async def test_committed_readers_stop_before_the_first_open_transaction(disk_topic: Replica) -> None:
    partition = disk_topic.partition
    partition.lead(0)
    partition.append(batch("before"), Acks.LEADER)
    partition.append_in_transaction(idempotent(9, 0, "open", transactional=True), Acks.LEADER)
    partition.append(batch("after"), Acks.LEADER)
    assert disk_topic.read(View.COMMITTED) == [b"before"]
    assert disk_topic.read(View.UNCOMMITTED) == [b"before", b"open", b"after"]
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 3)
    assert partition.open_epoch(9) == 0
    partition.append_marker(COMMIT)
    assert disk_topic.read(View.COMMITTED) == [b"before", b"open", b"after"]
    assert partition.open_epoch(9) is None


async def test_committed_readers_are_told_which_transactions_were_aborted_and_others_are_not(
    disk_topic: Replica,
) -> None:
    partition = disk_topic.partition
    partition.lead(0)
    partition.append_in_transaction(idempotent(9, 0, "dropped", transactional=True), Acks.LEADER)
    partition.append(batch("kept"), Acks.LEADER)
    partition.append_marker(ABORT)
    assert partition.read(0, bytes_max=1 << 20, view=View.COMMITTED).aborted == [(9, 0)]
    assert partition.read(0, bytes_max=1 << 20, view=View.UNCOMMITTED).aborted == ()
    assert disk_topic.read(View.COMMITTED) == [b"kept"]
    assert disk_topic.read(View.UNCOMMITTED) == [b"dropped", b"kept"]


async def test_in_an_fsync_topic_clients_see_what_is_on_the_disk_and_replicas_see_all(fsync_topic: Replica) -> None:
    partition = fsync_topic.partition
    partition.lead(0)
    written = partition.append(batch("a"), Acks.LEADER)
    assert (partition.high_watermark, fsync_topic.log.end_offset) == (0, 1)
    assert fsync_topic.read(View.COMMITTED) == fsync_topic.read(View.UNCOMMITTED) == []
    assert fsync_topic.read(View.REPLICA) == [b"a"]
    assert [partition.end_for(view) for view in View] == [0, 0, 1]
    fsync_topic.disk.is_free.set()
    assert written.safe is not None
    await written.safe
    assert fsync_topic.read(View.COMMITTED) == [b"a"]
    assert [partition.end_for(view) for view in View] == [1, 1, 1]


async def test_offsets_are_found_only_where_the_reader_may_see_them(fsync_topic: Replica) -> None:
    partition = fsync_topic.partition
    partition.lead(3)
    partition.append(batch("a", at_ms=1_000), Acks.LEADER)
    assert run_steps_here(partition.find_time(500, View.UNCOMMITTED)) is None
    found = run_steps_here(partition.find_time(500, View.REPLICA))
    assert found is not None and (found.offset, found.timestamp, found.leader_epoch) == (0, 1_000, 3)
    assert partition.find_latest(View.UNCOMMITTED).offset == 0
    assert partition.find_latest(View.REPLICA).offset == 1


async def test_records_that_are_not_yet_visible_cannot_be_deleted(fsync_topic: Replica) -> None:
    partition = fsync_topic.partition
    partition.lead(0)
    partition.append(batch("a"), Acks.LEADER)
    with pytest.raises(OffsetOutOfRange):
        run_steps_here(partition.delete_before(1))
    assert run_steps_here(partition.delete_before(-1)) == 0


async def test_the_high_watermark_never_moves_back(disk_topic: Replica) -> None:
    partition = disk_topic.partition
    partition.lead(0)
    seen = [partition.high_watermark]
    for epoch, value in enumerate(("a", "b", "c"), 1):
        partition.append(batch(value), Acks.LEADER)
        seen.append(partition.high_watermark)
        partition.follow(2 * epoch)
        seen.append(partition.high_watermark)
        partition.lead(2 * epoch + 1)
    assert seen == sorted(seen) and seen[-1] == 3
    disk_topic.log.truncate(1)
    with pytest.raises(AssertionError, match="high watermark never moves back"):
        _ = partition.high_watermark


async def test_a_topic_that_becomes_an_fsync_topic_hides_what_is_not_on_the_disk(disk_topic: Replica) -> None:
    partition = disk_topic.partition
    disk_topic.disk.is_free.clear()
    partition.lead(0)
    partition.append(batch("a"), Acks.LEADER)
    assert disk_topic.read(View.UNCOMMITTED) == [b"a"]
    partition.configure(settings(persistence="fsync"))
    assert disk_topic.read(View.UNCOMMITTED) == []


# --- transactions


async def test_a_transactional_batch_outside_of_a_transaction_is_refused(disk_topic: Replica) -> None:
    disk_topic.partition.lead(0)
    with pytest.raises(InvalidTransactionState):
        disk_topic.partition.append(idempotent(9, 0, transactional=True), Acks.LEADER)
    assert disk_topic.log.end_offset == 0


async def test_the_start_of_the_log_has_the_epoch_that_wrote_what_is_there(disk_topic: Replica) -> None:
    partition = disk_topic.partition
    for epoch in (4, 6):
        partition.lead(epoch)
        partition.append(batch("a"), Acks.LEADER)
    assert (partition.find_earliest().offset, partition.find_earliest().leader_epoch) == (0, 4)
    run_steps_here(partition.delete_before(1))
    assert (partition.find_earliest().offset, partition.find_earliest().leader_epoch) == (1, 6)


async def test_records_are_deleted_before_an_offset_or_all_with_minus_one_and_other_negative_offsets_are_refused(
    disk_topic: Replica,
) -> None:
    partition = disk_topic.partition
    partition.lead(0)
    partition.append(batch("a", "b"), Acks.LEADER)
    for offset in (-2, -5, 3):
        with pytest.raises(OffsetOutOfRange):
            run_steps_here(partition.delete_before(offset))
    assert partition.start_offset == 0
    assert run_steps_here(partition.delete_before(-1)) == 2
