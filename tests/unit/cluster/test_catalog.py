"""Changes of the metadata store happen as a whole, and never undo what somebody else has changed meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from flymq.cluster.catalog import (
    Catalog,
    NewEpoch,
    PartitionState,
    TopicSpec,
    parse_partition,
    parse_topic,
    partition_key,
)
from flymq.host.simulated_disk import SimulatedDisk
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import TXN_OPS_MAX, Put
from flymq.model.errors import TopicExists, TopicNotFound
from flymq.model.names import TopicPartition

FIRST, SECOND = UUID(int=1), UUID(int=2)
Known = dict[tuple[UUID, TopicPartition], NewEpoch]


def state(leader: int = 1, epoch: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, [1, 2, 3], [1])


@pytest.fixture
async def store() -> AsyncIterator[SqliteMetadataStore]:
    disk = SimulatedDisk()
    disk.make_directory(Path("/data"))
    store = SqliteMetadataStore.open(disk, Path("/data/metadata.db"))
    yield store
    await store.close()


@pytest.fixture
def catalog(store: SqliteMetadataStore) -> Catalog:
    return Catalog(store)


async def keys(store: SqliteMetadataStore, prefix: str = "") -> list[str]:
    return [each.key for each in (await store.range(prefix)).key_values]


async def states(store: SqliteMetadataStore, topic_id: UUID = FIRST) -> dict[int, PartitionState]:
    found = (await store.range(f"p/{topic_id}/")).key_values
    return {int(each.key.rpartition("/")[2]): parse_partition(each.value) for each in found}


async def put(store: SqliteMetadataStore, number: int, new: PartitionState) -> None:
    await store.txn(success=[Put(partition_key(FIRST, number), msgspec.json.encode(new, order="sorted"))])


# --- topics


async def test_a_topic_that_exists_is_not_created_again_and_nothing_of_the_attempt_stays(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    await catalog.create("orders", TopicSpec(FIRST, 1), [state()])
    with pytest.raises(TopicExists):
        await catalog.create("orders", TopicSpec(SECOND, 300), [state()] * 300)
    assert await keys(store) == [partition_key(FIRST, 0), "t/orders"]


async def test_a_change_names_the_revision_at_which_it_can_be_seen(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    revision = await catalog.create("orders", TopicSpec(FIRST, 1), [state()])
    assert (await store.range("")).revision == revision


async def test_who_changes_a_topic_from_an_old_version_of_it_changes_nothing(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    old, newer = TopicSpec(FIRST, 1), TopicSpec(FIRST, 1, settings={"retention.ms": 1})
    await catalog.create("orders", old, [state()])
    await catalog.replace("orders", old, newer)
    with pytest.raises(TopicNotFound, match="concurrently"):
        await catalog.replace("orders", old, TopicSpec(FIRST, 1, settings={"retention.ms": 2}))
    with pytest.raises(TopicNotFound, match="concurrently"):
        await catalog.delete("orders", old)
    (each,) = (await store.range("t/orders")).key_values
    assert parse_topic(each.value) == newer


async def test_who_adds_partitions_too_late_overwrites_none_of_those_that_are_there(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    old = TopicSpec(FIRST, 1)
    await catalog.create("orders", old, [state()])
    await catalog.add_partitions("orders", old, TopicSpec(FIRST, 2), [state(leader=2, epoch=5)])
    with pytest.raises(TopicNotFound, match="concurrently"):
        await catalog.add_partitions("orders", old, TopicSpec(FIRST, 3), [state(), state()])
    assert await states(store) == {0: state(), 1: state(leader=2, epoch=5)}


async def test_partitions_added_to_a_topic_that_is_gone_leave_nothing_behind(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    old = TopicSpec(FIRST, 1)
    await catalog.create("orders", old, [state()])
    await catalog.delete("orders", old)
    with pytest.raises(TopicNotFound, match="concurrently"):
        await catalog.add_partitions("orders", old, TopicSpec(FIRST, 2), [state()])
    assert await keys(store) == []


async def test_a_deleted_topic_is_remembered_until_each_of_its_brokers_has_removed_the_files(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    await catalog.create("orders", TopicSpec(FIRST, 300), [state()] * 300)
    await catalog.delete("orders", TopicSpec(FIRST, 300), brokers={1, 12})
    assert await catalog.gone(1) == await catalog.gone(12) == {FIRST: "orders"}
    assert await catalog.gone(2) == {}
    await catalog.forget_gone(FIRST, 1)
    assert await catalog.gone(1) == {}
    assert await catalog.gone(12) == {FIRST: "orders"}
    await catalog.forget_gone(FIRST, 12)
    assert await keys(store) == []


async def test_a_topic_on_more_brokers_than_a_txn_can_tell_is_deleted_on_all_of_them(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    await catalog.create("orders", TopicSpec(FIRST, 1), [state()])
    await catalog.delete("orders", TopicSpec(FIRST, 1), brokers=range(300))
    assert [await catalog.gone(broker) for broker in (0, 150, 299)] == [{FIRST: "orders"}] * 3


async def test_no_broker_removes_files_of_a_topic_whose_deletion_was_given_up(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    await catalog.create("orders", TopicSpec(FIRST, 1), [state()])
    await store.txn(success=[Put(f"gone/{FIRST}/200", b"orders")])  # the deletion ended here
    assert await catalog.gone(200) == {}


async def test_a_deletion_that_an_older_version_has_not_finished_is_finished(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    await store.txn(success=[Put(f"gone/{FIRST}", b"orders")])
    assert await catalog.gone(0) == {FIRST: "orders"}
    await catalog.forget_gone(FIRST, 0)
    assert await keys(store) == []


async def test_which_partitions_have_files_is_remembered_for_each_data_directory(store: SqliteMetadataStore) -> None:
    one, other = Catalog(store, "one"), Catalog(store, "other")
    await one.create("orders", TopicSpec(FIRST, 3), [state()] * 3)
    await one.mark_made({FIRST: {0, 1}})
    await other.mark_made({FIRST: {1, 2}})
    assert await one.made() == {FIRST: {0, 1}}
    assert await other.made() == {FIRST: {1, 2}}
    assert await Catalog(store, "emptied").made() == {}
    await one.delete("orders", TopicSpec(FIRST, 3))
    assert await keys(store) == []


async def test_a_single_broker_knows_its_files_by_the_keys_of_older_versions(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    await store.txn(success=[Put(f"made/{FIRST}", b"[0,2]")])
    assert await catalog.made() == {FIRST: {0, 2}}
    await catalog.mark_made({FIRST: {0, 1, 2}})
    assert await keys(store) == [f"made/{FIRST}"]


# --- leader epochs


async def known(store: SqliteMetadataStore) -> Known:
    return {
        (FIRST, TopicPartition("orders", number)): NewEpoch(each, each.leader_epoch + 1)
        for number, each in (await states(store)).items()
    }


async def test_leader_epochs_are_raised_by_one_however_many_partitions_there_are(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    count = 2 * TXN_OPS_MAX + 3
    await catalog.create("orders", TopicSpec(FIRST, count), [state(epoch=at) for at in range(count)])
    revision = await catalog.raise_leader_epochs(await known(store))
    assert await states(store) == {at: state(epoch=at + 1) for at in range(count)}
    assert revision == (await store.range("")).revision


async def test_a_partition_that_somebody_else_has_changed_keeps_its_epoch_and_the_others_get_theirs(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    count = TXN_OPS_MAX + 10
    await catalog.create("orders", TopicSpec(FIRST, count), [state()] * count)
    before = await known(store)
    changed = {3: state(leader=2, epoch=7), TXN_OPS_MAX + 5: state(leader=3, epoch=1)}
    for number, new in changed.items():
        await put(store, number, new)
    await catalog.raise_leader_epochs(before)
    assert await states(store) == {at: changed.get(at, state(epoch=1)) for at in range(count)}


async def test_a_partition_that_is_gone_is_not_brought_back_by_raising_its_epoch(
    store: SqliteMetadataStore, catalog: Catalog
) -> None:
    await catalog.create("orders", TopicSpec(FIRST, 1), [state()])
    before = await known(store)
    await catalog.delete("orders", TopicSpec(FIRST, 1))
    await catalog.raise_leader_epochs(before)
    assert await states(store) == {}


async def test_to_raise_no_epochs_waits_for_no_revision(catalog: Catalog) -> None:
    assert await catalog.raise_leader_epochs({}) == 0


# --- the cluster


async def test_the_cluster_keeps_the_id_of_its_first_start(catalog: Catalog) -> None:
    assert await catalog.cluster_id("first") == "first"
    assert await catalog.cluster_id("second") == "first"


async def test_no_producer_id_is_handed_out_twice(store: SqliteMetadataStore, catalog: Catalog) -> None:
    blocks = [await catalog.take_producer_ids() for _ in range(2)]
    blocks.append(await Catalog(store).take_producer_ids())
    handed_out = [producer_id for block in blocks for producer_id in block]
    assert len(handed_out) == len(set(handed_out)) > 0
