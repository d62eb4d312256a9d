"""What lies on this broker follows the image of the cluster: nobody asks for a log to be opened, closed or led."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.coordinators.groups import Committer
from flymq.broker.replicas.partition import Partition, Role
from flymq.broker.safety import wait_safe
from flymq.cluster.catalog import TopicSpec, partition_key
from flymq.coordination.entries import OffsetValue
from flymq.host.virtual_time import run
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import Put
from flymq.model.delivery import Acks
from flymq.model.errors import (
    CoordinatorOffline,
    NotLeader,
    PartitionNotFound,
    PartitionOffline,
    StorageError,
    TopicNotFound,
)
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.record.header import CRC_AT
from flymq.storage.recovery.checkpoint import CHECKPOINT_NAME, CLEAN_NAME

OTHER = 7
"""Another broker."""
FIRST, SECOND = UUID(int=1), UUID(int=2)
ORDERS = TopicPartition("orders", 0)
Scenario = Callable[[World, Broker], Awaitable[None]]


def in_world(scenario: Scenario) -> None:
    async def live() -> None:
        world = World()
        await scenario(world, await world.start())
        await world.close()

    run(live())


async def agree(world: World, name: str, topic_id: UUID, *, partitions: int = 1) -> TopicSpec:
    """Put a topic into the store, as any broker may; return when it is in this broker's image."""
    spec = TopicSpec(topic_id, partitions)
    revision = await world.catalog.create(name, spec, [world.new_state()] * partitions)
    await world.node.image.until(revision)
    return spec


def files_of(world: World, topic: str) -> list[str]:
    return [str(path) for path in world.disk.paths() if f"/{topic}~" in str(path)]


def a_batch(value: bytes = b"hello") -> bytes:
    return bytes(encode_batch([(None, value)]))


# --- open


def test_a_topic_that_appears_in_the_store_is_opened_here_and_led() -> None:
    async def scenario(world: World, node: Broker) -> None:
        told: list[str] = []
        node.replicas.topic_watchers.append(told.append)
        await agree(world, "orders", FIRST, partitions=3)
        with pytest.raises(NotLeader, match="orders-0 is being opened"):
            node.replicas.get(ORDERS)
        topic = node.image.get("orders")
        assert node.replicas.is_settling(topic) and told == []
        await node.replicas.settled(FIRST)
        assert not node.replicas.is_settling(topic) and told == ["orders"]
        partitions = node.replicas.of(node.image.get("orders"))
        assert [(number, each.role) for number, each in partitions.items()] == [(n, Role.LEADER) for n in range(3)]
        assert node.replicas.get(ORDERS).append(a_batch(), Acks.LEADER).base_offset == 0

    in_world(scenario)


def test_a_partition_without_a_replica_here_is_not_opened_and_its_leader_is_named() -> None:
    async def scenario(world: World, node: Broker) -> None:
        states = [world.new_state(), world.new_state(OTHER, replicas=[OTHER])]
        await node.image.until(await world.catalog.create("orders", TopicSpec(FIRST, 2), states))
        await node.replicas.settled(FIRST)
        assert list(node.replicas.of(node.image.get("orders"))) == [0]
        assert node.replicas.find(TopicPartition("orders", 1)) is None
        with pytest.raises(NotLeader, match=f"orders-1 is led by broker {OTHER}"):
            node.replicas.get(TopicPartition("orders", 1))
        assert not any("/1/" in path for path in files_of(world, "orders"))

    in_world(scenario)


def test_what_does_not_exist_is_reported_as_such() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        with pytest.raises(TopicNotFound):
            node.replicas.get(TopicPartition("nothing", 0))
        with pytest.raises(PartitionNotFound):
            node.replicas.get(TopicPartition("orders", 1))

    in_world(scenario)


def test_partitions_that_are_added_while_the_first_are_opened_are_opened_too() -> None:
    async def scenario(world: World, node: Broker) -> None:
        old = await agree(world, "orders", FIRST, partitions=1)
        new = TopicSpec(FIRST, 3)
        await node.image.until(await world.catalog.add_partitions("orders", old, new, [world.new_state()] * 2))
        await node.replicas.settled(FIRST)
        assert list(node.replicas.of(node.image.get("orders"))) == [0, 1, 2]

    in_world(scenario)


def test_a_restart_opens_what_the_image_has_and_nothing_else() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 2)
        await world.create_topic("gone", 2)
        await node.admin.delete("gone")
        node = await world.restart()
        assert [str(each.name) for each in node.replicas if not each.name.topic.startswith("__")] == [
            "orders-0",
            "orders-1",
        ]

    in_world(scenario)


# --- roles


def test_the_role_of_an_open_partition_follows_its_leader_in_the_store() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        roles: list[tuple[TopicPartition, Role, int]] = []
        node.replicas.role_watchers.append(lambda each: roles.append((each.name, each.role, each.leader_epoch)))
        partition = world.partition("orders")
        await world.elect(ORDERS, OTHER)
        with pytest.raises(NotLeader):
            partition.append(a_batch(), Acks.LEADER)
        await world.elect(ORDERS, world.broker_id)
        assert partition.append(a_batch(), Acks.LEADER).base_offset == 0
        assert roles == [(ORDERS, Role.FOLLOWER, 1), (ORDERS, Role.LEADER, 2)]
        assert world.partition("orders") is partition, "the log stays open"

    in_world(scenario)


def test_a_leader_that_is_elected_again_has_the_new_epoch_and_tells_so() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        told: list[Partition] = []
        node.replicas.role_watchers.append(told.append)
        assert await world.elect(ORDERS, world.broker_id) == 1
        assert told == [world.partition("orders")]
        assert told[0].leads and told[0].leader_epoch == 1

    in_world(scenario)


def test_a_leader_that_changes_while_the_log_is_opened_counts_once_it_is_open() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await agree(world, "orders", FIRST)
        await world.elect(ORDERS, OTHER)
        await node.replicas.settled(FIRST)
        assert (world.partition("orders").role, world.partition("orders").leader_epoch) == (Role.FOLLOWER, 1)

    in_world(scenario)


# --- settings


def test_settings_reach_partitions_that_are_open() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 2)
        await node.admin.alter("orders", {"max.message.bytes": 77})
        assert [world.partition("orders", number).log.config.max_message_bytes for number in range(2)] == [77, 77]
        await node.admin.alter("orders", {"max.message.bytes": None})
        assert world.partition("orders").log.config.max_message_bytes > 77

    in_world(scenario)


def test_settings_that_change_while_the_log_is_opened_are_not_lost() -> None:
    async def scenario(world: World, node: Broker) -> None:
        old = await agree(world, "orders", FIRST)
        new = msgspec.structs.replace(old, settings={"max.message.bytes": 77})
        await node.image.until(await world.catalog.replace("orders", old, new))
        await node.replicas.settled(FIRST)
        assert world.partition("orders").log.config.max_message_bytes == 77

    in_world(scenario)


# --- delete


def test_a_topic_deleted_while_its_logs_are_opened_leaves_no_files_and_no_partitions() -> None:
    async def scenario(world: World, node: Broker) -> None:
        spec = await agree(world, "orders", FIRST, partitions=3)
        await node.image.until(await world.catalog.delete("orders", spec))
        await node.replicas.settled(FIRST)
        assert files_of(world, "orders") == []
        assert node.replicas.find(ORDERS) is None

    in_world(scenario)


def test_a_topic_created_again_while_the_old_one_is_removed_has_only_its_own_files() -> None:
    async def scenario(world: World, node: Broker) -> None:
        spec = await agree(world, "orders", FIRST, partitions=3)
        await node.replicas.settled(FIRST)
        world.partition("orders").append(a_batch(), Acks.LEADER)
        await world.catalog.delete("orders", spec)
        await agree(world, "orders", SECOND)
        await node.replicas.settled(SECOND)
        await node.replicas.settled(FIRST)
        assert world.partition("orders").log.end_offset == 0
        assert files_of(world, "orders") and all(SECOND.hex in path for path in files_of(world, "orders"))

    in_world(scenario)


def test_a_deleted_topic_is_not_served_even_while_its_files_are_removed() -> None:
    async def scenario(world: World, node: Broker) -> None:
        spec = await agree(world, "orders", FIRST)
        await node.replicas.settled(FIRST)
        topic = node.image.get("orders")
        await node.image.until(await world.catalog.delete("orders", spec))
        assert files_of(world, "orders") != [] and node.replicas.is_settling(topic)
        with pytest.raises(TopicNotFound):
            node.replicas.get(ORDERS)
        await node.replicas.settled(FIRST)

    in_world(scenario)


# --- a disk that fails


def test_a_topic_whose_log_cannot_be_opened_was_not_created_and_can_be_created_again() -> None:
    async def scenario(world: World, node: Broker) -> None:
        world.disk.fail_next("create", "/orders~", errno.EIO)
        with pytest.raises(StorageError):
            await node.admin.create("orders", partitions=2)
        assert "orders" not in node.image and files_of(world, "orders") == []
        assert [each.key for each in (await world.store.range("t/orders")).key_values] == []
        assert await world.catalog.gone(world.broker_id) == {}
        await node.admin.create("orders", partitions=2)
        assert world.partition("orders", 1).append(a_batch(), Acks.LEADER).base_offset == 0

    in_world(scenario)


def test_a_partition_that_could_not_be_opened_was_not_added() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        world.disk.fail_next("create", "/orders~", errno.EIO)
        with pytest.raises(StorageError):
            await node.admin.add_partitions("orders", 2)
        assert len(node.image.get("orders").partitions) == 1
        with pytest.raises(PartitionNotFound):
            node.replicas.get(TopicPartition("orders", 1))
        assert world.partition("orders", 0).append(a_batch(), Acks.LEADER).base_offset == 0

    in_world(scenario)


def test_a_partition_that_can_be_opened_later_is_as_good_as_any_other() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        world.disk.fail_next("create", "/orders~", errno.ENOSPC)
        with pytest.raises(StorageError):
            await node.admin.add_partitions("orders", 2)
        await asyncio.sleep(2)
        await node.admin.add_partitions("orders", 3)  # there is space again
        await node.replicas.settled(node.image.get("orders").topic_id)
        for number in range(3):
            assert world.partition("orders", number).append(a_batch(), Acks.LEADER).base_offset == 0

    in_world(scenario)


def test_files_that_cannot_be_removed_are_reported_and_removed_at_the_next_start() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        world.partition("orders").append(a_batch(), Acks.LEADER)
        world.disk.fail_next("remove", "/orders~", errno.EIO)
        with pytest.raises(StorageError):
            await node.admin.delete("orders")
        assert "orders" not in node.image and files_of(world, "orders") != []
        node = await world.restart()
        assert files_of(world, "orders") == [] and await world.catalog.gone(world.broker_id) == {}

    in_world(scenario)


# --- offline


def corrupt(world: World, topic: str, number: int) -> None:
    """Flip a bit in the first batch of a log whose broker is stopped, and take its marker of a clean shutdown away."""
    (segment,) = (
        p for p in world.disk.paths() if f"/{topic}~" in str(p) and str(p).endswith(f"/{number}/{'0' * 20}.log")
    )
    world.disk.flip_bit(segment, CRC_AT)
    world.disk.remove(segment.with_name(CHECKPOINT_NAME))
    world.disk.remove(segment.with_name(CLEAN_NAME))


def test_a_partition_whose_log_is_corrupt_is_offline_and_all_others_are_served() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 2)
        await world.create_topic("payments", 1)
        for name, number in (("orders", 0), ("orders", 1), ("orders", 1), ("payments", 0)):
            world.partition(name, number).append(a_batch(), Acks.LEADER)
        await world.close()
        corrupt(world, "orders", 1)
        node = await world.start()
        assert world.partition("orders", 0).append(a_batch(), Acks.LEADER).base_offset == 1
        assert world.partition("payments", 0).append(a_batch(), Acks.LEADER).base_offset == 1
        with pytest.raises(PartitionOffline, match=r"orders-1 is offline: .*log at byte 0"):
            node.replicas.get(TopicPartition("orders", 1))
        assert list(node.replicas.all_offline()) == [TopicPartition("orders", 1)]

    in_world(scenario)


def test_a_topic_with_an_offline_partition_can_be_changed_extended_and_deleted() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 2)
        for _ in range(2):
            world.partition("orders", 1).append(a_batch(), Acks.LEADER)
        await world.close()
        corrupt(world, "orders", 1)
        node = await world.start()
        await node.admin.alter("orders", {"retention.ms": 1_000_000})
        await node.admin.add_partitions("orders", 3)
        assert world.partition("orders", 2).append(a_batch(), Acks.LEADER).base_offset == 0
        assert list(node.replicas.offline(node.image.get("orders"))) == [1]
        await node.admin.get_or_create("orders")
        await node.admin.delete("orders")
        assert files_of(world, "orders") == [] and node.replicas.all_offline() == {}

    in_world(scenario)


@pytest.mark.parametrize("is_found", ["while opening", "while loading"])
def test_an_internal_partition_that_cannot_be_read_takes_only_its_own_groups_offline(is_found: str) -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        names = [f"group-{n}" for n in range(10)]
        for name in names:
            await wait_safe(node.groups.commit(name, Committer(), {ORDERS: OffsetValue(3)})[1])
        lost = {name for name in names if node.groups._log.number_of(name) == 0}
        assert 0 < len(lost) < len(names)
        await world.close()
        if is_found == "while opening":
            corrupt(world, "__offsets", 0)
        else:
            (segment,) = (
                p for p in world.disk.paths() if "/__offsets~" in str(p) and str(p).endswith("/0/" + "0" * 20 + ".log")
            )
            world.disk.flip_bit(segment, CRC_AT)
        node = await world.start()
        for name in set(names) - lost:
            assert node.groups.committed(name)[ORDERS].offset == 3
        for name in lost:
            with pytest.raises(CoordinatorOffline, match="offline"):
                node.groups.committed(name)
        assert [str(name) for name in node.replicas.all_offline()] == ["__offsets-0"]

    in_world(scenario)


def test_metadata_older_than_the_log_gets_a_leader_epoch_above_that_of_the_log() -> None:
    async def scenario(world: World, node: Broker) -> None:
        await world.create_topic("orders", 1)
        old = node.image.state(ORDERS)
        for _ in range(3):
            await world.elect(ORDERS, world.broker_id)
            world.partition("orders").append(a_batch(), Acks.LEADER)
        key = partition_key(node.image.get("orders").topic_id, 0)
        await world.close()
        store = SqliteMetadataStore.open(world.disk, Path("/data/metadata.db"))
        await store.txn(success=[Put(key, msgspec.json.encode(old, order="sorted"))])
        await store.close()
        await world.start()
        assert world.partition("orders").leads and world.partition("orders").leader_epoch == 4
        assert world.partition("orders").append(a_batch(), Acks.LEADER).base_offset == 3

    in_world(scenario)
