"""The image of the cluster follows the metadata store, revision by revision, and tells what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from flymq.cluster.catalog import Catalog, PartitionState, Scope, TopicSpec, partition_key
from flymq.cluster.image import Image, Topic, TopicChange
from flymq.host.simulated_disk import SimulatedDisk
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import TXN_OPS_MAX, Delete, DeletePrefix, MetadataStore, Put
from flymq.model.errors import IndeterminateResult, PartitionNotFound, TopicIdNotFound, TopicNotFound
from flymq.model.names import TopicPartition
from flymq.model.topic_config import TopicConfig

FIRST, SECOND = UUID(int=1), UUID(int=2)


def state(leader: int = 1, epoch: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, [1, 2, 3], [1])


class Followed:
    """A store, the image that follows it, and what its watchers were told."""

    def __init__(self, *, history_bytes_max: int = 8 << 20) -> None:
        disk = SimulatedDisk()
        disk.make_directory(Path("/data"))
        self.store = SqliteMetadataStore.open(disk, Path("/data/metadata.db"), history_bytes_max=history_bytes_max)
        self.catalog = Catalog(self.store)
        self.image = Image(self.store, TopicConfig())
        self.changes: list[TopicChange] = []
        self.image.watchers.append(self.changes.append)

    async def create(self, name: str, topic_id: UUID, partitions: int = 1) -> None:
        spec = TopicSpec(topic_id, partitions)
        await self.image.until(await self.catalog.create(name, spec, [state()] * partitions))

    def told(self) -> list[TopicChange]:
        """Return what the watchers were told since the last call."""
        told = self.changes[:]
        self.changes.clear()
        return told

    def the_change(self) -> tuple[Topic | None, Topic | None]:
        (change,) = self.told()
        return change.before, change.after


@asynccontextmanager
async def following(**options: int) -> AsyncIterator[Followed]:
    followed = Followed(**options)
    await followed.image.load()
    task = asyncio.ensure_future(followed.image.follow())
    try:
        yield followed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await followed.store.close()


async def test_a_setting_that_this_version_does_not_know_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async with following() as followed:
        spec = TopicSpec(FIRST, 1, 1, {"retention.ms": 5000, "of.tomorrow": 1, "segment.bytes": "many"})
        await followed.image.until(await followed.catalog.create("orders", spec, [state()]))
        assert followed.image.get("orders").config.retention_ms == 5000
        assert "of.tomorrow" in caplog.text and "segment.bytes" in caplog.text


def names(topics: Sequence[Topic] | Image) -> list[str]:
    return [topic.name for topic in topics]


# --- load and follow


async def test_a_loaded_image_is_the_store_at_its_latest_revision() -> None:
    followed = Followed()
    revision = await followed.catalog.create("orders", TopicSpec(FIRST, 2), [state(1), state(2, 7)])
    await followed.image.load()
    assert followed.image.revision == revision
    assert followed.image.get("orders").partitions == (state(1), state(2, 7))
    assert followed.image.state(TopicPartition("orders", 1)) == state(2, 7)
    assert followed.image.partition_counts() == {"orders": 2}
    await followed.store.close()


async def test_every_later_change_arrives_in_the_order_of_the_revisions() -> None:
    async with following() as followed:
        last = 0
        for name in ("c", "a", "b"):
            last = await followed.catalog.create(name, TopicSpec(UUID(int=ord(name)), 1), [state()])
        last = await followed.catalog.delete("a", TopicSpec(UUID(int=ord("a")), 1))
        await followed.image.until(last)
        assert [(change.name, change.after is None) for change in followed.told()] == [
            ("c", False),
            ("a", False),
            ("b", False),
            ("a", True),
        ]
        assert names(followed.image) == ["b", "c"]
        assert followed.image.revision == last


async def test_what_changes_between_loading_and_following_is_not_missed() -> None:
    followed = Followed()
    await followed.image.load()
    await followed.catalog.create("orders", TopicSpec(FIRST, 1), [state()])
    task = asyncio.ensure_future(followed.image.follow())
    await followed.image.until(followed.image.revision + 1)
    await followed.store.close()
    await task


async def test_who_waits_for_a_revision_goes_on_when_it_has_arrived_and_not_before() -> None:
    async with following() as followed:
        await followed.create("orders", FIRST)
        await followed.image.until(followed.image.revision)  # it is there already
        waiting = asyncio.ensure_future(followed.image.until(followed.image.revision + 2))
        await followed.create("first", UUID(int=8))
        assert not waiting.done()
        await followed.create("second", UUID(int=9))
        assert "second" in followed.image
        await waiting


async def test_a_revision_that_touches_no_topic_arrives_too() -> None:
    async with following() as followed:
        result = await followed.store.txn(success=[Put("pid/next", b"1000")])
        await followed.image.until(result.revision)
        assert followed.told() == []


async def test_a_waiter_that_has_gone_does_not_keep_others_waiting() -> None:
    async with following() as followed:
        wanted = followed.image.revision + 1
        gone, stays = (asyncio.ensure_future(followed.image.until(wanted)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        await followed.create("orders", FIRST)
        await stays


# --- topics


async def test_a_topic_appears_once_all_its_partitions_are_known_and_not_before() -> None:
    async with following() as followed:
        for number in range(2):
            result = await followed.store.txn(
                success=[Put(partition_key(FIRST, number), msgspec.json.encode(state(epoch=number)))]
            )
            await followed.image.until(result.revision)
            assert "orders" not in followed.image and followed.told() == []
        result = await followed.store.txn(success=[Put("t/orders", msgspec.json.encode(TopicSpec(FIRST, 2)))])
        await followed.image.until(result.revision)
        before, after = followed.the_change()
        assert before is None and after is not None
        assert [each.leader_epoch for each in after.partitions] == [0, 1]


async def test_a_topic_whose_partitions_are_missing_is_reported_and_the_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with following() as followed:
        result = await followed.store.txn(success=[Put("t/broken", msgspec.json.encode(TopicSpec(FIRST, 2)))])
        await followed.image.until(result.revision)
        assert "the metadata lacks its partitions [0, 1]" in caplog.text
        await followed.create("orders", SECOND)
        assert names(followed.image) == ["orders"]
        again = Image(followed.store, TopicConfig())
        await again.load()
        assert names(again) == ["orders"]


async def test_a_topic_of_more_partitions_than_a_txn_takes_appears_with_all_of_them() -> None:
    async with following() as followed:
        count = 2 * TXN_OPS_MAX + 1
        states = [state(epoch=number) for number in range(count)]
        await followed.image.until(await followed.catalog.create("orders", TopicSpec(FIRST, count), states))
        before, after = followed.the_change()
        assert before is None and after is not None
        assert after.partitions == tuple(states)


async def test_watchers_see_a_created_topic_with_its_name_id_and_settings() -> None:
    async with following() as followed:
        spec = TopicSpec(FIRST, 1, settings={"max.message.bytes": 77})
        await followed.image.until(await followed.catalog.create("orders", spec, [state()]))
        before, after = followed.the_change()
        assert before is None and after is not None
        assert (after.name, after.topic_id, after.config.max_message_bytes) == ("orders", FIRST, 77)
        assert followed.image.get_by_id(FIRST.bytes) is after is followed.image.find_by_id(FIRST.bytes)


async def test_added_partitions_come_as_one_change_of_the_topic() -> None:
    async with following() as followed:
        await followed.create("orders", FIRST, 1)
        followed.told()
        old, new = TopicSpec(FIRST, 1), TopicSpec(FIRST, 3)
        revision = await followed.catalog.add_partitions("orders", old, new, [state(2), state(3)])
        await followed.image.until(revision)
        before, after = followed.the_change()
        assert before is not None and after is not None
        assert [each.leader for each in before.partitions] == [1]
        assert [each.leader for each in after.partitions] == [1, 2, 3]


async def test_changed_settings_leave_the_old_topic_as_it_was() -> None:
    async with following() as followed:
        await followed.create("orders", FIRST)
        followed.told()
        new = TopicSpec(FIRST, 1, settings={"max.message.bytes": 77})
        await followed.image.until(await followed.catalog.replace("orders", TopicSpec(FIRST, 1), new))
        before, after = followed.the_change()
        assert before is not None and after is not None
        assert before.config == TopicConfig()
        assert after.config.max_message_bytes == 77


async def test_a_new_leader_is_a_change_of_its_topic() -> None:
    async with following() as followed:
        await followed.create("orders", FIRST, 2)
        followed.told()
        result = await followed.store.txn(success=[Put(partition_key(FIRST, 1), msgspec.json.encode(state(3, 1)))])
        await followed.image.until(result.revision)
        before, after = followed.the_change()
        assert before is not None and after is not None
        assert (before.state(1), after.state(1)) == (state(), state(3, 1))
        assert before.state(0) == after.state(0)


async def test_a_deleted_topic_is_found_neither_by_name_nor_by_id() -> None:
    async with following() as followed:
        await followed.create("orders", FIRST)
        followed.told()
        await followed.image.until(await followed.catalog.delete("orders", TopicSpec(FIRST, 1)))
        before, after = followed.the_change()
        assert before is not None and after is None
        assert "orders" not in followed.image and len(followed.image) == 0
        with pytest.raises(TopicNotFound):
            followed.image.get("orders")
        with pytest.raises(TopicIdNotFound):
            followed.image.get_by_id(FIRST.bytes)


async def test_a_topic_that_is_deleted_and_created_again_is_another_one() -> None:
    async with following() as followed:
        await followed.create("orders", FIRST, 1)
        await followed.image.until(await followed.catalog.delete("orders", TopicSpec(FIRST, 1)))
        await followed.create("orders", SECOND, 2)
        _, deletion, creation = followed.told()
        assert deletion.after is None and creation.before is None
        assert creation.after is not None and creation.after.topic_id == SECOND
        assert followed.image.find_by_id(FIRST.bytes) is None


async def test_a_topic_that_is_replaced_at_one_revision_is_told_as_one_change() -> None:
    async with following() as followed:
        await followed.create("orders", FIRST, 1)
        followed.told()
        result = await followed.store.txn(
            success=[
                DeletePrefix(f"p/{FIRST}/"),
                Put(partition_key(SECOND, 0), msgspec.json.encode(state())),
                Put("t/orders", msgspec.json.encode(TopicSpec(SECOND, 1))),
            ]
        )
        await followed.image.until(result.revision)
        before, after = followed.the_change()
        assert before is not None and after is not None
        assert (before.topic_id, after.topic_id) == (FIRST, SECOND)
        assert followed.image.find_by_id(FIRST.bytes) is None
        assert followed.image.get_by_id(SECOND.bytes) is after


async def test_watchers_are_called_when_the_whole_revision_is_applied() -> None:
    async with following() as followed:
        seen: list[list[str]] = []
        followed.image.watchers.append(lambda change: seen.append(names(followed.image)))
        puts = [Put(partition_key(topic_id, 0), msgspec.json.encode(state())) for topic_id in (FIRST, SECOND)]
        puts += [
            Put("t/a", msgspec.json.encode(TopicSpec(FIRST, 1))),
            Put("t/b", msgspec.json.encode(TopicSpec(SECOND, 1))),
        ]
        await followed.image.until((await followed.store.txn(success=puts)).revision)
        assert seen == [["a", "b"], ["a", "b"]]


async def test_a_partition_that_a_topic_does_not_have_is_named() -> None:
    async with following() as followed:
        await followed.create("orders", FIRST, 2)
        for number in (-1, 2):
            with pytest.raises(PartitionNotFound, match="partitions 0 to 1"):
                followed.image.state(TopicPartition("orders", number))


# --- when history is lost, and at the end


async def test_after_the_history_was_compacted_it_loads_again_and_tells_the_difference() -> None:
    followed = Followed(history_bytes_max=1_000)
    for name, topic_id in (("changed", FIRST), ("deleted", SECOND), ("same", UUID(int=3))):
        await followed.catalog.create(name, TopicSpec(topic_id, 1), [state()])
    await followed.image.load()
    followed.told()
    await followed.catalog.replace("changed", TopicSpec(FIRST, 1), TopicSpec(FIRST, 1, settings={"retention.ms": 5}))
    await followed.catalog.delete("deleted", TopicSpec(SECOND, 1))
    await followed.catalog.create("new", TopicSpec(UUID(int=4), 1), [state()])
    last = (await followed.store.txn(success=[Put("elsewhere", bytes(5_000))])).revision
    task = asyncio.ensure_future(followed.image.follow())
    await followed.image.until(last)
    told = {change.name: (change.before is None, change.after is None) for change in followed.told()}
    assert told == {"changed": (False, False), "deleted": (False, True), "new": (True, False)}
    await followed.create("later", UUID(int=5))  # and it goes on to follow
    assert "later" in followed.image
    await followed.store.close()
    await task


async def test_who_waits_is_released_when_following_ends() -> None:
    async with following() as followed:
        waiting = asyncio.ensure_future(followed.image.until(followed.image.revision + 1))
        await asyncio.sleep(0)
        await followed.store.close()
        with pytest.raises(IndeterminateResult):
            await waiting


async def test_who_comes_after_following_has_ended_does_not_wait_for_ever() -> None:
    followed = Followed()
    await followed.image.load()
    following = asyncio.ensure_future(followed.image.follow())
    await asyncio.sleep(0)
    await followed.store.close()
    await following
    with pytest.raises(IndeterminateResult):
        async with asyncio.timeout(5):
            await followed.image.until(followed.image.revision + 1)


async def test_a_leader_epoch_that_goes_back_is_a_bug_and_not_applied() -> None:
    followed = Followed()
    await followed.catalog.create("orders", TopicSpec(FIRST, 1), [state(epoch=4)])
    await followed.image.load()
    following = asyncio.ensure_future(followed.image.follow())
    await followed.store.txn(success=[Put(partition_key(FIRST, 0), msgspec.json.encode(state(epoch=3)))])
    with pytest.raises(AssertionError, match="leader epoch of orders went back"):
        await following
    await followed.store.close()


async def test_a_topic_created_again_begins_with_any_leader_epoch() -> None:
    async with following() as followed:
        await followed.image.until(await followed.catalog.create("orders", TopicSpec(FIRST, 1), [state(epoch=9)]))
        await followed.image.until(await followed.catalog.delete("orders", TopicSpec(FIRST, 1)))
        await followed.create("orders", SECOND)
        assert followed.image.get("orders").state(0).leader_epoch == 0


async def test_keys_of_partitions_that_belong_to_no_topic_are_left_alone() -> None:
    async with following() as followed:
        store: MetadataStore = followed.store
        await store.txn(success=[Put(partition_key(FIRST, 0), msgspec.json.encode(state()))])
        result = await store.txn(success=[Delete(partition_key(FIRST, 0))])
        await followed.image.until(result.revision)
        assert followed.told() == [] and len(followed.image) == 0


async def test_a_revision_that_changes_very_many_topics_is_shown_in_one_step_and_lets_others_run() -> None:
    async with following() as followed:
        puts = []
        for number in range(1, 2_000):
            spec = TopicSpec(UUID(int=number), 1)
            puts.append(Put(partition_key(spec.topic_id, 0), msgspec.json.encode(state())))
            puts.append(Put(f"t/{number}", msgspec.json.encode(spec)))
        for at in range(0, len(puts), TXN_OPS_MAX):
            result = await followed.store.txn(success=puts[at : at + TXN_OPS_MAX])
        await followed.image.until(result.revision)
        shown: list[set[int]] = []

        async def look() -> None:
            while {1234} not in shown:
                shown.append({topic.config.retention_ms for topic in followed.image})
                await asyncio.sleep(0)

        looking = asyncio.ensure_future(look())
        before = followed.image.get("1").config.retention_ms
        revision = await followed.catalog.put_settings(Scope.BROKER, "", {}, {"retention.ms": 1234})
        prepared = len(shown)
        await followed.image.until(revision)
        await looking
        assert all(each in ({before}, {1234}) for each in shown), "a mixture of two revisions"
        assert len(shown) > prepared + 1, "nobody else ran while the revision was prepared"
