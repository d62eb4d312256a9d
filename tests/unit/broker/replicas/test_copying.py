"""A leader and followers, without a network between them: logs become the same, byte for byte."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.unit.broker.replicas.test_partition import Replica
from tests.unit.storage.batches import batch

from flymq.broker.replicas.following import Answer, Following
from flymq.broker.replicas.partition import Partition, View
from flymq.broker.replicas.replica_sessions import ReplicaId, ReplicaSession
from flymq.cluster.catalog import PartitionState
from flymq.host.clock import ManualClock
from flymq.host.tasks import run_steps_here
from flymq.model.delivery import Acks
from flymq.model.errors import NotLeader, PartitionOffline, StorageError

TOPIC_ID = bytes(16)


class Broker(Replica):
    """One broker with a replica of the partition."""

    def __init__(self, number: int) -> None:
        super().__init__("disk")
        self.disk.is_free.set()
        self.number = number
        self.following = Following()

    def lead(self, epoch: int, isr: list[int]) -> None:
        self.partition.lead(epoch, PartitionState(self.number, epoch, [1, 2, 3], isr))

    def follow(self, epoch: int) -> None:
        self.partition.follow(epoch)
        self.following = Following()
        self.following.add(TOPIC_ID, self.partition)

    def find(self, replica: ReplicaId) -> Partition:
        assert replica == (TOPIC_ID, self.partition.name.partition)
        return self.partition

    @property
    def values(self) -> list[bytes | None]:
        return self.read(View.REPLICA) if self.partition.leads else []

    @property
    def content(self) -> bytes:
        found = self.log.read(self.log.start_offset, bytes_max=1 << 20) if self.log.end_offset else None
        return b"" if found is None else bytes(found.read())


class Copying:
    """The session of one follower at one leader."""

    def __init__(self, leader: Broker, follower: Broker) -> None:
        self.leader = leader
        self.follower = follower
        self.session = ReplicaSession(follower.number, 100, leader.find, ManualClock())

    async def exchange(self, *, bytes_max: int = 1 << 20, wait_s: float = 0.0) -> list[Answer]:
        question = self.follower.following.ask()
        self.session.change(question.positions, question.forgotten)
        reads = self.session.fetch(bytes_max=bytes_max, wait_s=wait_s)
        reads = reads if isinstance(reads, list) else await reads
        answers = [
            Answer(
                read.replica,
                b"" if read.slice is None else bytes(read.slice.read()),
                read.high_watermark,
                read.start_offset,
                read.diverging,
                read.error,
            )
            for read in reads
        ]
        for rewrite in self.follower.following.take(answers).rewrites:
            rewrite.run()
            self.follower.following.release(rewrite.replica)
        return answers

    async def catch_up(self) -> None:
        for _ in range(10):
            await self.exchange()
        assert self.follower.log.end_offset == self.leader.log.end_offset


@pytest.fixture
def brokers() -> list[Broker]:
    return [Broker(number) for number in (1, 2, 3)]


async def test_a_follower_copies_and_the_leader_learns_how_far_it_is(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1, 2])
    follower.follow(4)
    safe = leader.partition.append(batch("a", "b"), Acks.ALL).safe
    copying = Copying(leader, follower)
    await copying.exchange()
    assert follower.content == leader.content and safe is not None and not safe.done()
    await copying.exchange()
    await safe
    assert leader.partition.high_watermark == 2
    assert follower.partition.high_watermark == 2


async def test_a_fetch_waits_for_records_and_not_for_the_high_watermark(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1, 2])
    follower.follow(4)
    copying = Copying(leader, follower)
    await copying.exchange()
    waiting = asyncio.ensure_future(copying.exchange(wait_s=30))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    leader.partition.append(batch("a"), Acks.LEADER)
    (answer,) = await waiting
    assert answer.batches
    waiting = asyncio.ensure_future(copying.exchange(wait_s=0.05))
    await asyncio.sleep(0.01)
    assert leader.partition.high_watermark == 1 and not waiting.done(), "the high watermark alone is no news"
    (answer,) = await waiting
    assert (answer.batches, answer.high_watermark) == (b"", 1)
    assert await copying.exchange() == [], "nothing has changed"


async def test_only_what_has_changed_is_sent(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1])
    follower.follow(4)
    copying = Copying(leader, follower)
    await copying.catch_up()
    assert not follower.following.has_changes or follower.following.ask().positions == []


async def test_a_response_is_not_larger_than_asked_for(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1])
    follower.follow(4)
    for value in "abc":
        leader.partition.append(batch(value), Acks.LEADER)
    copying = Copying(leader, follower)
    await copying.exchange(bytes_max=1)
    assert follower.log.end_offset == 1, "at least one batch"
    await copying.catch_up()


async def test_a_follower_drops_what_the_new_leader_does_not_have(brokers: list[Broker]) -> None:
    old, new, _ = brokers
    old.lead(4, [1, 2])
    new.follow(4)
    old.partition.append(batch("a"), Acks.LEADER)
    await Copying(old, new).catch_up()
    old.partition.append(batch("lost"), Acks.LEADER)
    old.partition.append(batch("lost too"), Acks.LEADER)
    new.lead(5, [2])
    new.partition.append(batch("b"), Acks.LEADER)
    old.follow(5)
    await Copying(new, old).catch_up()
    assert old.content == new.content
    assert new.values == [b"a", b"b"]


async def test_a_follower_whose_leader_has_deleted_more_goes_on_where_it_starts(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1])
    follower.follow(4)
    leader.partition.append(batch("a"), Acks.LEADER)
    copying = Copying(leader, follower)
    await copying.catch_up()
    for value in "bcd":
        leader.partition.append(batch(value), Acks.LEADER)
    await leader.partition.safe()  # type: ignore[misc]
    run_steps_here(leader.partition.delete_before(3))
    await copying.catch_up()
    assert follower.log.start_offset == 3
    assert follower.content == leader.content


async def test_a_leader_that_learns_later_of_its_follower_gets_its_position_then(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.partition.lead(4, PartitionState(1, 4, [1], [1]))
    follower.follow(4)
    copying = Copying(leader, follower)
    await copying.exchange()
    for replicas in ([1, 3], [1, 2, 3]):
        assert follower.following.has_failed
        leader.partition.update(PartitionState(1, 4, replicas, [1]))
        follower.following.try_failed_again()
        await copying.exchange()
    assert not follower.following.has_failed
    assert leader.partition.replication is not None and leader.partition.replication.followers.has_caught_up(2)


async def test_a_follower_whose_disk_was_full_goes_on_when_there_is_room(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1])
    follower.follow(4)
    leader.partition.append(batch("a", "b"), Acks.LEADER)
    copying = Copying(leader, follower)
    follower.simulated_disk.bytes_free = 10
    await copying.exchange()
    assert follower.following.has_failed and follower.log.end_offset == 0
    follower.simulated_disk.bytes_free = None
    follower.following.try_failed_again()
    await copying.exchange()
    assert follower.content == leader.content


async def test_a_follower_whose_log_has_failed_copies_it_no_more(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1])
    follower.follow(4)
    leader.partition.append(batch("a"), Acks.LEADER)
    follower.log.go_offline(StorageError("a sector is bad"))
    await Copying(leader, follower).exchange()
    assert len(follower.following) == 0


async def test_a_follower_tries_again_when_its_leader_cannot_read_its_own_log(brokers: list[Broker]) -> None:
    _, follower, _ = brokers
    follower.follow(4)
    follower.following.ask()
    follower.following.take([Answer((TOPIC_ID, 0), error=PartitionOffline("a sector is bad"))])
    assert len(follower.following) == 1 and follower.following.has_failed


async def test_a_leader_that_leads_no_more_says_so_to_a_fetch_that_waits(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1])
    follower.follow(4)
    copying = Copying(leader, follower)
    await copying.exchange()
    waiting = asyncio.ensure_future(copying.exchange(wait_s=30))
    await asyncio.sleep(0.01)
    leader.partition.follow(5)
    (answer,) = await waiting
    assert isinstance(answer.error, NotLeader)
    assert follower.following.has_failed, "it asks again: who leads is known soon"


async def test_a_follower_that_is_gone_leaves_nothing_at_the_leader(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1])
    follower.follow(4)
    copying = Copying(leader, follower)
    await copying.exchange()
    assert leader.partition._waiting
    copying.session.close()
    assert not leader.partition._waiting


@pytest.mark.parametrize("seed", range(30))
async def test_whoever_led_and_whatever_was_lost_the_logs_become_the_same(brokers: list[Broker], seed: int) -> None:
    chance = random.Random(seed)
    for epoch in range(1, chance.randint(3, 9)):
        leader = chance.choice(brokers)
        leader.lead(epoch, [leader.number])
        followers = [broker for broker in brokers if broker is not leader]
        copies = []
        for follower in followers:
            follower.follow(epoch)
            copies.append(Copying(leader, follower))
        for number in range(chance.randint(0, 6)):
            leader.partition.append(batch(f"{epoch}-{number}"), Acks.LEADER)
            for copying in copies:
                if chance.random() < 0.4:
                    await copying.exchange(bytes_max=chance.choice((1, 200, 1 << 20)))
    for copying in copies:
        await copying.catch_up()
    assert len({broker.content for broker in brokers}) == 1


async def test_a_partition_that_is_held_is_not_asked_for_until_it_is_released(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(4, [1])
    follower.follow(4)
    follower.following.hold((TOPIC_ID, 0))
    follower.following.forget_session()
    assert not follower.following.has_changes
    follower.following.release((TOPIC_ID, 0))
    assert len(follower.following.ask().positions) == 1


async def test_a_partition_that_was_refused_before_is_not_asked_for_while_it_is_held(brokers: list[Broker]) -> None:
    leader, follower, _ = brokers
    leader.lead(5, [1])
    follower.follow(4)
    copying = Copying(leader, follower)
    await copying.exchange()
    assert follower.following.has_failed
    follower.following.hold((TOPIC_ID, 0))
    follower.following.try_failed_again()
    assert not follower.following.has_changes
