"""One broker governs; partitions have leaders that live, and nobody writes who was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from flymq.cluster.brokers import ClusterBroker, Kept, Listener, Registration
from flymq.cluster.catalog import NO_LEADER, Catalog, PartitionState, TopicSpec
from flymq.cluster.controller import Controller, Probe
from flymq.cluster.image import Image
from flymq.cluster.membership import Membership
from flymq.cluster.plan import StateChange
from flymq.cluster.term import Term
from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import Tasks
from flymq.host.virtual_time import Life, run
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.model.errors import BrokerIdInUse
from flymq.model.topic_config import TopicConfig

TOPIC = UUID(int=7)


class Node:
    """A broker: an image, a registration, a controller, and nothing behind them."""

    def __init__(
        self,
        store: SqliteMetadataStore,
        broker_id: int,
        *,
        was_clean: bool = True,
        directory: str = "",
        probe: Probe | None = None,
    ) -> None:
        self.image = Image(store, TopicConfig())
        listener = Listener(f"host{broker_id}", 9092)
        registration = Registration(
            [listener], directory or f"disk-{broker_id}", kept=Kept.WRITTEN if was_clean else Kept.NOTHING
        )
        self.membership = Membership(store, self.image, broker_id, registration)
        self.controller = Controller(store, self.image, broker_id, probe=probe, preferred_every_s=30)
        self.tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error!r}"))
        self.life = Life()

    async def start(self) -> None:
        await self.image.load()
        self.tasks.spawn("image", self.image.follow())
        await self.membership.register()
        self.tasks.spawn("membership", self.membership.run())
        self.tasks.spawn("controller", self.controller.run())


class World:
    """A metadata store and the brokers that use it."""

    def __init__(self) -> None:
        disk = SimulatedDisk()
        disk.make_directory(Path("/data"))
        self.store = SqliteMetadataStore.open(disk, Path("/data/metadata.db"))
        self.catalog = Catalog(self.store)
        self.nodes: dict[int, Node] = {}
        self.refusing: set[int] = set()
        self.probes = 0
        self.settle_s = 2.0

    async def start(self, broker_id: int, *, was_clean: bool = True, directory: str = "") -> Node:
        node = Node(self.store, broker_id, was_clean=was_clean, directory=directory, probe=self.listens)
        self.refusing.discard(broker_id)
        self.nodes[broker_id] = node
        await node.life.begin(node.start(), f"broker {broker_id}")
        await self.settle()
        return node

    async def listens(self, broker: ClusterBroker) -> bool:
        self.probes += 1
        return broker.broker_id not in self.refusing

    def kill_9(self, broker_id: int) -> int:
        """End the process: its leases stay, its port refuses connections. Return the epoch of its registration."""
        node = self.nodes.pop(broker_id)
        node.life.end()
        self.refusing.add(broker_id)
        assert node.membership.epoch is not None
        return node.membership.epoch

    def lose_connections(self, broker_id: int, epoch: int) -> None:
        """All others notice that their connections to a broker were reset."""
        for node in self.nodes.values():
            node.life.run(node.controller.suspect, broker_id, epoch)

    async def kill(self, broker_id: int) -> None:
        """End it as if its leases had expired."""
        node = self.nodes.pop(broker_id)
        sessions = [node.membership._session]
        await node.tasks.close()
        for session in sessions:
            if session is not None:
                await session.close()
        await self.settle()

    async def create(self, *states: PartitionState, min_isr: int = 1, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        spec = TopicSpec(TOPIC, len(states), 3, {"min.insync.replicas": min_isr, **named})
        await self.catalog.create("orders", spec, states)
        await self.settle()

    async def settle(self) -> None:
        await asyncio.sleep(self.settle_s)

    @property
    def states(self) -> tuple[PartitionState, ...]:
        return next(iter(self.nodes.values())).image.get("orders").partitions

    @property
    def governors(self) -> list[int]:
        return [broker_id for broker_id, node in self.nodes.items() if node.controller.epoch is not None]

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.tasks.close()
        await self.store.close()


def in_world(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def live() -> None:
        world = World()
        await scenario(world)
        await world.close()

    run(live())


def led_by(leader: int, number: int, state: PartitionState) -> StateChange:
    after = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)
    return StateChange(TOPIC, number, state, after)


def all_in_sync(leader: int = 1, epoch: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, [1, 2, 3], [1, 2, 3])


def test_one_broker_governs_and_another_when_it_is_gone() -> None:
    async def scenario(world: World) -> None:
        for broker_id in (1, 2, 3):
            await world.start(broker_id)
        assert world.governors == [1]
        first_epoch = world.nodes[1].controller.epoch
        await world.kill(1)
        (successor,) = world.governors
        epoch = world.nodes[successor].controller.epoch
        assert first_epoch is not None and epoch is not None and epoch > first_epoch

    in_world(scenario)


def test_a_broker_counts_when_it_is_admitted() -> None:
    async def scenario(world: World) -> None:
        node = await world.start(1)
        await world.start(2)
        assert node.image.members.live == {1, 2}
        await world.kill(2)
        assert node.image.members.live == {1}

    in_world(scenario)


def test_partitions_of_a_broker_that_is_gone_are_led_by_others_and_come_back() -> None:
    async def scenario(world: World) -> None:
        for broker_id in (1, 2, 3):
            await world.start(broker_id)
        await world.create(all_in_sync(2), all_in_sync(3))
        await world.kill(2)
        assert world.states == (
            PartitionState(1, 1, [1, 2, 3], [1, 3]),
            PartitionState(3, 0, [1, 2, 3], [1, 3]),
        )

    in_world(scenario)


def test_a_partition_without_a_live_replica_in_sync_is_offline_until_one_returns() -> None:
    async def scenario(world: World) -> None:
        for broker_id in (1, 2):
            await world.start(broker_id)
        await world.create(PartitionState(2, 0, [2, 1], [2]))
        await world.kill(2)
        assert world.states[0] == PartitionState(NO_LEADER, 1, [2, 1], [2])
        await world.start(2, was_clean=False)
        assert world.states[0] == PartitionState(2, 2, [2, 1], [2]), "nobody has more than the last one"

    in_world(scenario)


def test_a_broker_that_may_have_lost_records_is_out_of_sync_before_it_counts() -> None:
    async def scenario(world: World) -> None:
        node = await world.start(1)
        await world.create(PartitionState(1, 0, [1, 2], [1, 2]))
        states: list[tuple[bool, list[int]]] = []
        node.image.member_watchers.append(
            lambda: states.append((2 in node.image.members.live, node.image.get("orders").partitions[0].isr))
        )
        await world.start(2, was_clean=False)
        assert (True, [1]) in states and (True, [1, 2]) not in states

    in_world(scenario)


def test_a_broker_that_was_restarted_unseen_gets_a_new_epoch_as_leader() -> None:
    async def scenario(world: World) -> None:
        await world.start(1)
        await world.start(2)
        await world.create(PartitionState(2, 0, [2], [2]))
        old = world.nodes.pop(2)
        await old.tasks.close()  # its session has not expired yet
        node = await world.start(2)
        assert world.states[0] == PartitionState(2, 2, [2], [2])
        assert node.image.members.live == {1, 2}

    in_world(scenario)


def test_a_broker_id_belongs_to_one_data_directory() -> None:
    async def scenario(world: World) -> None:
        await world.start(1)
        other = Node(world.store, 1, directory="another")
        await other.image.load()
        with pytest.raises(BrokerIdInUse, match="broker 1 is registered at host1:9092"):
            await other.membership.register()

    in_world(scenario)


def test_a_broker_that_drains_leads_nothing_and_the_others_have_its_partitions() -> None:
    async def scenario(world: World) -> None:
        for broker_id in (1, 2, 3):
            await world.start(broker_id)
        await world.create(all_in_sync(1), PartitionState(1, 0, [1], [1]))
        await world.nodes[1].membership.drain()
        await world.settle()
        assert world.states[0] == PartitionState(2, 1, [1, 2, 3], [2, 3])
        assert world.states[1].leader == 1, "nobody else has it"

    in_world(scenario)


def test_preferred_leaders_come_back_after_a_while() -> None:
    async def scenario(world: World) -> None:
        for broker_id in (1, 2, 3):
            await world.start(broker_id)
        await world.create(all_in_sync(3))
        assert world.states[0].leader == 3
        await asyncio.sleep(31)
        assert world.states[0] == all_in_sync(1, epoch=1)

    in_world(scenario)


def term_of(node: Node, epoch: int | None) -> Term:
    assert epoch is not None
    return Term(node.image._store, node.image, epoch, preferred_every_s=30)


def test_a_controller_that_was_replaced_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        for broker_id in (1, 2):
            await world.start(broker_id)
        await world.create(all_in_sync())
        node = world.nodes[1]
        assert node.controller.epoch is not None
        before = world.states
        change = led_by(2, 0, before[0])
        await term_of(node, node.controller.epoch - 1)._carry_out([change])
        await world.settle()
        assert world.states == before
        await term_of(node, node.controller.epoch)._carry_out([change])
        await world.settle()
        assert world.states != before

    in_world(scenario)


def test_a_broker_that_was_restarted_meanwhile_is_not_made_a_leader() -> None:
    async def scenario(world: World) -> None:
        node = await world.start(1)
        await world.start(2)
        await world.create(PartitionState(1, 0, [1, 2], [1, 2]), PartitionState(2, 0, [1, 2], [1, 2]))
        term = term_of(node, node.controller.epoch)
        await world.kill(2)
        await world.start(2, was_clean=False)
        decided = led_by(2, 0, world.states[0]), led_by(1, 1, world.states[1])
        before = world.states
        await term._carry_out(decided)  # by the brokers as they were before
        await world.settle()
        assert world.states[0] == before[0]

    in_world(scenario)


def test_hundreds_of_partitions_change_leader_together() -> None:
    async def scenario(world: World) -> None:
        for broker_id in (1, 2, 3):
            await world.start(broker_id)
        await world.create(*[all_in_sync(2)] * 500)
        await world.kill(2)
        assert {state.leader for state in world.states} == {1}
        assert {state.leader_epoch for state in world.states} == {1}

    in_world(scenario)


def test_a_partition_that_was_changed_meanwhile_does_not_keep_others_from_their_change() -> None:
    async def scenario(world: World) -> None:
        node = await world.start(1)
        await world.start(2)
        await world.create(*[PartitionState(1, 0, [1, 2], [1, 2])] * 50)
        changes = [led_by(2, number, state) for number, state in enumerate(world.states)]
        changes[17] = led_by(2, 17, PartitionState(1, 0, [1, 2], [1]))  # not what the store has
        await term_of(node, node.controller.epoch)._carry_out(changes)
        await world.settle()
        assert [number for number, state in enumerate(world.states) if state.leader == 1] == [17]

    in_world(scenario)


def test_only_by_the_setting_of_a_topic_a_replica_out_of_sync_leads_and_that_is_said_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        for broker_id in (1, 2):
            await world.start(broker_id)
        await world.create(PartitionState(2, 0, [2, 1], [2]), unclean_leader_election_enable="true")
        await world.kill(2)
        assert world.states[0] == PartitionState(1, 1, [2, 1], [1])
        assert world.nodes[1].controller.unclean_elections == 1
        assert "UNCLEAN ELECTION: broker 1 leads partition 0 of the topic orders" in caplog.text

    in_world(scenario)
