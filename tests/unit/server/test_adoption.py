"""Topics and metadata that lost each other: none is deleted, none starts empty in silence."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.broker.safety import wait_safe
from flymq.host.virtual_time import run
from flymq.metadata.images import IMAGE_NAME, PREVIOUS_NAME
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import Delete, DeletePrefix
from flymq.model.delivery import Acks
from flymq.model.errors import CatalogLost, CorruptMetadata, PartitionMissing, PartitionOffline
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch
from flymq.server.repair_catalog import CatalogRepair, repair_catalog
from flymq.storage.topic_note import NOTE_NAME

DATA = Path("/data")
Scenario = Callable[[World], Awaitable[None]]


def in_world(scenario: Scenario) -> None:
    async def live() -> None:
        world = World()
        await world.start()
        await world.node.admin.create("orders", partitions=3, settings={"retention.ms": 5_000})
        await wait_safe(world.partition("orders", 2).append(encode_batch([(None, b"tea")]), Acks.ALL).safe)
        await scenario(world)
        await world.close()

    run(live())


def folder_of(world: World, topic: str) -> Path:
    (found,) = {path.parents[1] for path in world.disk.paths() if f"/{topic}~" in str(path) and path.name != NOTE_NAME}
    return found


def metadata_files(world: World) -> list[Path]:
    return [path for path in world.disk.paths() if path.parent == DATA and "metadata" in path.name]


async def forget(world: World, topic: str) -> None:
    """Let the metadata forget a topic, as if its creation had never been there."""
    store = SqliteMetadataStore.open(world.disk, DATA / IMAGE_NAME)
    topic_id = UUID(folder_of(world, topic).name.rpartition("~")[2])
    await store.txn(success=[Delete(f"t/{topic}"), DeletePrefix(f"p/{topic_id}/")])
    await store.close()


async def repaired(world: World, **options: bool) -> CatalogRepair:
    return await repair_catalog(world.machine.host, DATA, **options)


def values(world: World) -> list[bytes | None]:
    return [record.value for record in world.read("orders", 2)]


def test_a_topic_that_the_metadata_forgot_is_adopted_with_its_settings_and_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        topic = world.node.image.get("orders")
        await world.close()
        await forget(world, "orders")
        with caplog.at_level(logging.WARNING, "flymq"):
            node = await world.start()
        assert "adopted the topic orders" in caplog.text
        assert node.image.get("orders").spec == topic.spec
        assert values(world) == [b"tea"]
        caplog.clear()
        await world.restart()
        assert "adopted" not in caplog.text
        assert values(world) == [b"tea"]

    in_world(scenario)


def test_a_broker_that_adopts_a_topic_hands_out_no_producer_id_twice() -> None:
    async def scenario(world: World) -> None:
        ids = await world.catalog.take_producer_ids()
        await world.close()
        await forget(world, "orders")
        await world.start()
        assert (await world.catalog.take_producer_ids()).start > ids.stop + (1 << 30)

    in_world(scenario)


def test_a_folder_without_a_note_is_left_alone_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.close()
        await forget(world, "orders")
        folder = folder_of(world, "orders")
        world.disk.remove(folder / NOTE_NAME)
        before = [path for path in world.disk.paths() if folder in path.parents]
        with caplog.at_level(logging.WARNING, "flymq"):
            node = await world.start()
        assert f"topics/{folder.name} is unknown to the metadata and is left alone" in caplog.text
        assert "orders" not in node.image
        assert [path for path in world.disk.paths() if folder in path.parents] == before
        await world.close()
        found = await repaired(world)
        assert [note.name for note in found.adopted] == ["orders"] == list(found.guessed)
        await world.start()
        assert values(world) == [b"tea"]

    in_world(scenario)


def test_a_topic_of_a_name_that_is_taken_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.close()
        await forget(world, "orders")
        first = folder_of(world, "orders")
        note = world.disk.read(first / NOTE_NAME)
        world.disk.remove(first / NOTE_NAME)
        await world.start()
        await world.create_topic("orders", 1)
        await world.close()
        world.disk.open(first / NOTE_NAME).append([note])
        await world.start()
        assert "there is another topic of the name orders" in caplog.text
        assert len(world.node.image.get("orders").partitions) == 1
        await world.close()
        assert [folder.name for folder in (await repaired(world)).left_alone] == [first.name]

    in_world(scenario)


def test_a_deleted_topic_leaves_nothing_to_adopt_wherever_its_deletion_was_interrupted() -> None:
    async def live(bytes_until_cut: int) -> bool:
        world = World()
        node = await world.start()
        await world.create_topic("orders", 2)
        world.disk.bytes_until_cut = bytes_until_cut
        deleting = world.machine.run(node.admin.delete("orders"))
        try:
            await deleting
            is_done = True
        except BaseException as error:
            assert type(error).__name__ in ("MachineDied", "PowerCut")
            is_done = False
        world.disk.bytes_until_cut = None
        if not is_done:
            world.machine.lose_power() if world.machine.is_up else None
            await world.start()
            was_deleted = "orders" not in world.node.image
            topic = world.node.image.find("orders")
            assert was_deleted or (topic is not None and len(world.node.replicas.of(topic)) == 2)
            await world.restart()
            assert ("orders" not in world.node.image) is was_deleted, "it does not come back"
        await world.close()
        return is_done

    cut = 0
    while not run(live(cut)):
        cut += 13
    assert cut > 100


def test_a_broker_does_not_start_empty_when_its_metadata_is_gone_and_repair_brings_the_topics_back() -> None:
    async def scenario(world: World) -> None:
        topic = world.node.image.get("orders")
        await world.close()
        for path in metadata_files(world):
            world.disk.remove(path)
        for _ in range(2):
            with pytest.raises(CatalogLost, match="orders~") as caught:
                await world.start()
            assert "flymq repair catalog" in caught.value.hint
            world.disk.end_process()
        before = world.disk.paths()
        dry = await repaired(world, dry_run=True)
        assert [path for path in world.disk.paths() if path not in before] == []
        done = await repaired(world)
        assert [note.name for note in dry.adopted] == [note.name for note in done.adopted]
        assert {note.name for note in done.adopted} == {"__offsets", "__transactions", "orders"}
        await world.start()
        assert world.node.image.get("orders").spec == topic.spec
        assert values(world) == [b"tea"]

    in_world(scenario)


def test_a_broker_whose_images_are_both_damaged_says_what_to_do_and_repair_brings_the_topics_back() -> None:
    async def scenario(world: World) -> None:
        await world.restart()
        await world.create_topic("later", 1)
        await world.restart()
        await world.close()
        for name in (IMAGE_NAME, PREVIOUS_NAME):
            world.disk.flip_bit(DATA / name, 5)
        with pytest.raises(CorruptMetadata) as caught:
            await world.start()
        assert "flymq repair catalog" in caught.value.hint
        world.disk.end_process()
        found = await repaired(world)
        assert found.lost
        assert {"orders", "later"} <= {note.name for note in found.adopted}
        await world.start()
        assert values(world) == [b"tea"]

    in_world(scenario)


def test_repair_finds_nothing_to_do_in_a_sound_data_directory() -> None:
    async def scenario(world: World) -> None:
        await world.close()
        found = await repaired(world)
        assert found == CatalogRepair([], [], [], set(), [], [])
        await world.start()
        assert values(world) == [b"tea"]

    in_world(scenario)


@pytest.mark.parametrize("leaves_folder", [False, True])
def test_a_partition_whose_files_are_gone_is_offline_and_not_empty(leaves_folder: bool) -> None:
    async def scenario(world: World) -> None:
        await world.close()
        folder = folder_of(world, "orders") / "2"
        world.disk.remove_directory(folder)
        if leaves_folder:
            world.disk.make_directory(folder)
        node = await world.start()
        offline = node.replicas.all_offline()
        assert list(offline) == [TopicPartition("orders", 2)]
        assert isinstance(offline[TopicPartition("orders", 2)].__cause__, PartitionMissing)
        with pytest.raises(PartitionOffline, match="the files of orders-2 are gone"):
            node.replicas.get(("orders", 2))
        assert world.partition("orders", 1).log.end_offset == 0
        await world.close()
        assert (await repaired(world)).missing == [TopicPartition("orders", 2)]
        await world.start()
        assert world.node.replicas.all_offline()
        await world.close()
        assert (await repaired(world, recreate_missing=True)).missing == [TopicPartition("orders", 2)]
        await world.start()
        assert values(world) == []

    in_world(scenario)


def test_a_new_partition_of_an_old_topic_is_created(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.node.admin.add_partitions("orders", 5)
        await world.restart()
        assert not world.node.replicas.all_offline()
        await world.close()
        await forget(world, "orders")
        await world.start()
        assert len(world.node.image.get("orders").partitions) == 5

    in_world(scenario)


def test_changed_settings_are_those_of_the_adopted_topic() -> None:
    async def scenario(world: World) -> None:
        await world.node.admin.alter("orders", {"retention.ms": None, "retention.bytes": 77_000})
        await world.close()
        await forget(world, "orders")
        node: Broker = await world.start()
        assert node.image.get("orders").spec.settings == {"retention.bytes": 77_000}

    in_world(scenario)
