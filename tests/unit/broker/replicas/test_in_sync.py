"""The leader changes the in-sync replicas in the metadata store, and counts on nothing before it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tests.unit.broker.replicas.test_replication import Leader
from tests.unit.cluster.test_controller import TOPIC, World

from flymq.broker.replicas.in_sync import InSync
from flymq.cluster.catalog import Catalog, PartitionState
from flymq.cluster.image import TopicChange
from flymq.host.clock import ManualClock
from flymq.host.virtual_time import run
from flymq.metadata.store import Compare, Op, TxnResult
from flymq.model.delivery import Acks
from flymq.model.errors import IndeterminateResult

LAG_S = 10.0


class Partition(Leader):
    """Broker 1 leads a partition of the brokers 1, 2 and 3, in a cluster."""

    def __init__(self, world: World, state: PartitionState, min_isr: int) -> None:
        super().__init__("disk", state, min_isr)
        self.world = world
        self.image = world.nodes[1].image
        self.image.watchers.append(self._changed)
        self.now = ManualClock()
        self.keeper = InSync(1, self.image, Catalog(world.store), lambda: iter(()), self.now, lag_max_s=LAG_S)

    def _changed(self, change: TopicChange) -> None:
        if change.after is not None:
            self.replication.changed(change.after.partitions[0], self.now.monotonic_s())

    def fetch(self, broker: int, offset: int, *, epoch: int | None = None) -> None:
        if epoch is None:
            member = self.image.members.find(broker)
            assert member is not None
            epoch = member.epoch
        self.replication.fetched(broker, epoch, offset, offset, self.now.monotonic_s())

    async def keep(self) -> list[int]:
        """Return the in-sync replicas in the store after the leader had a look."""
        await self.keeper.keep(TOPIC, self.partition)
        await asyncio.sleep(0.1)
        return self.image.get("orders").partitions[0].isr


def in_world(
    scenario: Callable[[World, Partition], Awaitable[None]], isr: Sequence[int] = (1, 2, 3), min_isr: int = 1
) -> None:
    async def live() -> None:
        world = World()
        for broker_id in (1, 2, 3):
            await world.start(broker_id)
        state = PartitionState(1, 4, [1, 2, 3], list(isr))
        await world.create(state, min_isr=min_isr)
        await scenario(world, Partition(world, state, min_isr))
        await world.close()

    run(live())


def test_a_follower_that_falls_behind_goes_and_comes_back_when_it_has_caught_up() -> None:
    async def scenario(world: World, partition: Partition) -> None:
        safe = partition.append()
        partition.fetch(2, 1)
        partition.now.move(ms=11_000)
        partition.fetch(2, 1)
        assert safe is not None and not safe.done()
        assert await partition.keep() == [1, 2]
        await safe
        partition.fetch(3, 1)
        assert await partition.keep() == [1, 2, 3]

    in_world(scenario)


def test_a_follower_that_was_restarted_comes_in_when_its_new_registration_has_caught_up() -> None:
    async def scenario(world: World, partition: Partition) -> None:
        partition.append(Acks.LEADER)
        old = world.nodes[3].membership.epoch
        await world.kill(3)
        await world.start(3, was_clean=False)
        partition.fetch(3, 1, epoch=old)  # a late fetch of the process that is gone
        assert await partition.keep() == [1, 2]
        partition.fetch(3, 1)
        assert await partition.keep() == [1, 2, 3]

    in_world(scenario, isr=(1, 2))


def test_a_follower_that_is_about_to_stop_does_not_come_back() -> None:
    async def scenario(world: World, partition: Partition) -> None:
        await world.nodes[3].membership.drain()
        await world.settle()
        partition.fetch(3, 0)
        assert await partition.keep() == [1, 2]

    in_world(scenario)


def test_what_was_changed_meanwhile_is_not_overwritten() -> None:
    async def scenario(world: World, partition: Partition) -> None:
        stale = partition.replication.state
        other = PartitionState(2, 5, [1, 2, 3], [1, 2])
        partition.image.watchers.clear()
        await Catalog(world.store).change_state(TOPIC, 0, stale, other)
        partition.fetch(3, 0)
        assert await partition.keep() == [1, 2]
        assert partition.image.get("orders").partitions[0] == other

    in_world(scenario, isr=(1, 2))


def test_eligible_replicas_are_forgotten_before_anything_is_committed_without_them() -> None:
    async def scenario(world: World, partition: Partition) -> None:
        lonely = PartitionState(1, 4, [1, 2, 3], [1], [2, 3])
        await Catalog(world.store).change_state(TOPIC, 0, partition.replication.state, lonely)
        await world.settle()
        partition.append(Acks.LEADER)
        partition.fetch(2, 1)
        assert partition.partition.high_watermark == 0
        assert await partition.keep() == [1, 2]
        assert partition.image.get("orders").partitions[0].elr == []
        partition.fetch(2, 1)
        assert partition.partition.high_watermark == 1

    in_world(scenario, min_isr=2)


def test_an_answer_that_is_lost_is_found_out() -> None:
    for is_done in (True, False):

        async def scenario(world: World, partition: Partition, is_done: bool = is_done) -> None:
            txn = world.store.txn

            async def lose_answer(
                compares: Sequence[Compare] = (), success: Sequence[Op] = (), failure: Sequence[Op] = ()
            ) -> TxnResult:
                world.store.txn = txn  # type: ignore[method-assign]
                if is_done:
                    await txn(compares, success, failure)
                raise IndeterminateResult

            partition.fetch(3, 0)
            world.store.txn = lose_answer  # type: ignore[method-assign]
            assert await partition.keep() == ([1, 2, 3] if is_done else [1, 2])
            assert await partition.keep() == [1, 2, 3]

        in_world(scenario, isr=(1, 2))
