"""A leader and its followers: what is acknowledged and what is visible when."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.replicas.test_partition import NAME, Replica
from tests.unit.storage.batches import batch, open_simulated, settings

from flymq.broker.replicas.partition import Partition, View
from flymq.broker.replicas.replication import Replication
from flymq.broker.safety import Safe
from flymq.cluster.catalog import PartitionState
from flymq.host.clock import ManualClock
from flymq.model.delivery import Acks
from flymq.model.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeader, OffsetNotAvailable
from flymq.storage.flusher import Flusher

IN_SYNC = PartitionState(1, 4, [1, 2, 3], [1, 2, 3])


class Leader(Replica):
    """Broker 1, which leads a partition of three replicas."""

    def __init__(self, persistence: str = "disk", state: PartitionState = IN_SYNC, min_isr: int = 1) -> None:
        super().__init__(persistence)
        _, self.log = open_simulated(settings(persistence=persistence, min_insync_replicas=min_isr))
        flusher = Flusher(self.disk, self.tasks, lambda error: pytest.fail(str(error)))
        self.partition = Partition(NAME, self.log, flusher=flusher, clock=ManualClock())
        self.partition.lead(4, state)

    @property
    def replication(self) -> Replication:
        assert self.partition.replication is not None
        return self.partition.replication

    def append(self, acks: Acks = Acks.ALL) -> Safe:
        return self.partition.append(batch("a"), acks).safe

    def fetched(self, broker: int, offset: int, durable: int | None = None) -> None:
        self.replication.fetched(broker, 100, offset, offset if durable is None else durable, 0.0)

    def store_has(self, *isr: int, elr: tuple[int, ...] = ()) -> None:
        self.replication.changed(PartitionState(1, 4, [1, 2, 3], list(isr), list(elr)), 0.0)


async def test_acks_all_waits_for_every_replica_in_sync_and_readers_too() -> None:
    leader = Leader()
    safe = leader.append()
    assert safe is not None and leader.read(View.UNCOMMITTED) == [] and leader.read(View.REPLICA) == [b"a"]
    leader.fetched(2, 1)
    assert not safe.done()
    leader.fetched(3, 1)
    await safe
    assert leader.read(View.UNCOMMITTED) == leader.read(View.COMMITTED) == [b"a"]


async def test_acks_leader_does_not_wait_but_readers_do() -> None:
    leader = Leader()
    assert leader.append(Acks.LEADER) is None
    assert leader.read(View.UNCOMMITTED) == []


async def test_a_record_that_is_there_already_is_acknowledged_in_order() -> None:
    leader = Leader()
    first, second = leader.append(), leader.append()
    assert first is not None and second is not None
    leader.fetched(2, 2)
    leader.fetched(3, 1)
    await first
    assert not second.done()
    leader.fetched(3, 2)
    await second


async def test_an_fsync_topic_waits_for_every_disk() -> None:
    leader = Leader("fsync")
    safe = leader.append()
    assert safe is not None
    leader.fetched(2, 1, durable=1)
    leader.fetched(3, 1, durable=0)
    leader.disk.is_free.set()
    await asyncio.sleep(0.01)
    assert not safe.done(), "3 has it only in its page cache"
    leader.fetched(3, 1, durable=1)
    await safe
    await leader.tasks.close()


async def test_a_leader_that_alone_is_in_sync_acknowledges_what_is_on_its_disk() -> None:
    leader = Leader(state=PartitionState(1, 4, [1, 2], [1]))
    safe = leader.append()
    await asyncio.sleep(0)
    assert safe is not None and not safe.done()
    leader.disk.is_free.set()
    await safe
    await leader.tasks.close()


async def test_when_the_others_have_left_what_waits_is_acknowledged_by_the_disk() -> None:
    leader = Leader()
    safe = leader.append()
    leader.store_has(1)
    assert safe is not None and not safe.done()
    leader.disk.is_free.set()
    await safe
    await leader.tasks.close()


async def test_with_too_few_in_sync_acks_all_is_refused_and_nothing_is_written() -> None:
    leader = Leader(min_isr=2)
    leader.store_has(1, elr=(2, 3))
    with pytest.raises(NotEnoughReplicas, match="has 1 in-sync replicas, and needs 2"):
        leader.append()
    assert leader.log.end_offset == 0
    assert leader.append(Acks.LEADER) is None


async def test_nothing_is_committed_while_others_are_eligible() -> None:
    leader = Leader(min_isr=2)
    safe = leader.append()
    leader.store_has(1, 2, elr=(3,))
    leader.fetched(2, 1)
    assert safe is not None and not safe.done()
    leader.store_has(1, 2)
    await safe


async def test_whoever_waits_when_another_broker_leads_is_told_so() -> None:
    leader = Leader()
    safe = leader.append()
    leader.partition.follow(5)
    assert safe is not None
    with pytest.raises(NotLeader):
        await safe


async def test_a_new_leader_shows_no_less_than_it_did_as_a_follower() -> None:
    leader = Leader()
    leader.append(Acks.LEADER)
    leader.append(Acks.LEADER)
    for broker in (2, 3):
        leader.fetched(broker, 1)
    follower = Replica("disk")
    follower.partition.follow(4)
    follower.partition.append_as_follower(leader.copy(), leader_epoch=4)
    follower.partition.set_high_watermark(leader.partition.high_watermark)
    assert follower.partition.high_watermark == 1
    follower.partition.set_high_watermark(9)
    assert follower.partition.high_watermark == 2, "what it does not have is not visible"
    follower.partition.lead(5, PartitionState(2, 5, [1, 2, 3], [2, 3]))
    assert follower.partition.high_watermark == 2
    await follower.tasks.close()


async def test_in_an_fsync_topic_a_follower_has_caught_up_when_its_disk_has() -> None:
    leader = Leader("fsync", PartitionState(1, 4, [1, 2, 3], [1, 2]))
    leader.disk.is_free.set()
    safe = leader.append()
    leader.fetched(2, 1, durable=1)
    assert safe is not None
    await safe
    leader.fetched(3, 1, durable=0)
    assert not leader.replication.followers.has_caught_up(3)
    leader.fetched(3, 1, durable=1)
    assert leader.replication.followers.has_caught_up(3)
    await leader.tasks.close()


async def test_a_new_leader_tells_no_end_before_it_knows_what_is_committed() -> None:
    leader = Leader()
    leader.append()
    leader.partition.lead(5, PartitionState(1, 5, [1, 2, 3], [1, 2, 3]))
    with pytest.raises(OffsetNotAvailable):
        leader.partition.find_latest(View.UNCOMMITTED)
    leader.fetched(2, 1)
    leader.fetched(3, 1)
    assert leader.partition.find_latest(View.UNCOMMITTED).offset == 1
    await leader.tasks.close()


async def test_a_follower_gives_consumers_what_it_knows_to_be_committed_and_nothing_more() -> None:
    follower = Leader().partition
    follower.append(batch("a", "b"), Acks.LEADER)
    follower.follow(5)

    def read(offset: int) -> int:
        return follower.read(offset, bytes_max=1 << 20, view=View.UNCOMMITTED, from_follower=True).length

    assert read(0) == 0
    with pytest.raises(OffsetNotAvailable):
        read(1)
    woken: list[str] = []
    follower.wait(lambda: woken.append("woken"))
    follower.set_high_watermark(2)
    assert woken == ["woken"] and read(0) > 0 and read(2) == 0
    with pytest.raises(NotLeader):
        follower.read(0, bytes_max=1 << 20, view=View.UNCOMMITTED)
    follower.is_rewritten = True
    with pytest.raises(NotLeader, match="truncated"):
        read(0)


async def test_records_that_too_few_replicas_are_left_for_are_told_so() -> None:
    leader = Leader(min_isr=2)
    safe = leader.append()
    assert safe is not None
    leader.store_has(1)
    with pytest.raises(NotEnoughReplicasAfterAppend):
        await safe
    with pytest.raises(NotEnoughReplicas):
        leader.append()
    await leader.tasks.close()


async def test_a_change_of_another_partition_does_not_end_a_proposal() -> None:
    state = PartitionState(1, 4, [1, 2, 3], [1, 2])
    leader = Leader(state=state)
    leader.replication.followers.propose([1, 2, 3])
    safe = leader.append()
    leader.fetched(2, 1)
    leader.replication.changed(state, 0.0)
    assert safe is not None and not safe.done(), "3 may be in sync already, and does not have it"
    leader.fetched(3, 1)
    await safe
    await leader.tasks.close()


async def test_what_was_truncated_is_not_committed() -> None:
    leader = Leader()
    leader.append()
    leader.fetched(2, 1)
    leader.fetched(3, 1)
    assert leader.partition.high_watermark == 1
    leader.partition.follow(5)
    leader.log.truncate(0)
    leader.partition.rewritten()
    leader.partition.lead(6, PartitionState(1, 6, [1, 2, 3], [1, 2, 3]))
    assert leader.partition.high_watermark == 0
    safe = leader.append()
    assert safe is not None and not safe.done()
    await leader.tasks.close()
