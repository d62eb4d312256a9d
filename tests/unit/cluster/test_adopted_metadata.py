"""The metadata of a single broker becomes that of a cluster: every key, in as many txns as it takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from flymq.cluster.adopted_metadata import check_is_free, copy, finish, translate
from flymq.cluster.catalog import NO_LEADER, Catalog, PartitionState, Scope, TopicSpec, parse_partition
from flymq.host.simulated_disk import SimulatedDisk
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import MetadataStore
from flymq.model.errors import AdoptionUnfinished, ClusterNotEmpty

TOPIC, DELETED = UUID(int=1), UUID(int=2)
PARTITIONS = 300


def new_store() -> SqliteMetadataStore:
    disk = SimulatedDisk()
    disk.make_directory(Path("/data"))
    return SqliteMetadataStore.open(disk, Path("/data/metadata.db"))


async def all_of(store: MetadataStore) -> dict[str, bytes]:
    return {each.key: each.value for each in (await store.range("")).key_values}


async def single_broker() -> dict[str, bytes]:
    """What broker 0 has, which is alone."""
    store = new_store()
    catalog = Catalog(store)
    await catalog.cluster_id("blue")
    spec = TopicSpec(DELETED, 1)
    await catalog.create("old", spec, [PartitionState(0, 0, [0], [0])])
    await catalog.delete("old", spec, [0])
    await catalog.mark_made({TOPIC: range(PARTITIONS)})
    states = [PartitionState(0, number, [0], [0]) for number in range(PARTITIONS)]
    await catalog.create("orders", TopicSpec(TOPIC, PARTITIONS, 1, {"retention.ms": 5}), states)
    await catalog.put_settings(Scope.BROKER, "0", {}, {"segment.bytes": 1})
    await catalog.put_settings(Scope.BROKER, "", {}, {"segment.bytes": 2})
    await catalog.put_settings(Scope.GROUP, "0", {}, {"x": 3})
    await catalog.take_producer_ids(1000)
    return await all_of(store)


def test_every_key_is_translated_to_the_broker_and_its_directory() -> None:
    async def translated() -> None:
        before = await single_broker()
        after = translate(before, old_id=0, broker_id=7, directory_id="dir")
        assert len(after) == len(before) - 1, "all but the cluster"
        for number in range(PARTITIONS):
            state = parse_partition(after[f"p/{TOPIC}/{number}"])
            assert state == PartitionState(NO_LEADER, number, [7], [7])
        assert after["t/orders"] == before["t/orders"]
        assert after["pid/next"] == b"1000"
        assert after[f"gone/{DELETED}/7"] == b"old"
        assert after[f"made/{TOPIC}/dir"] == before[f"made/{TOPIC}"]
        assert {key for key in after if key.startswith("s/")} == {"s/broker/7", "s/broker/", "s/group/0"}

    asyncio.run(translated())


def test_a_topic_that_was_deleted_under_an_older_version_is_still_removed() -> None:
    after = translate({f"gone/{DELETED}": b"old"}, old_id=0, broker_id=7, directory_id="dir")
    assert after == {f"gone/{DELETED}/7": b"old"}


def test_no_broker_starts_before_the_copy_is_finished() -> None:
    async def copied() -> None:
        store = new_store()
        metadata = translate(await single_broker(), old_id=0, broker_id=7, directory_id="dir")
        await copy(store, metadata, "dir")
        for ask in (Catalog(store).cluster_id("green"), Catalog(store).find_cluster_id()):
            with pytest.raises(AdoptionUnfinished):
                await ask
        await finish(store, "blue", "dir")
        assert await Catalog(store, "dir").cluster_id("green") == "blue"
        assert await all_of(store) == {**metadata, "cluster": b"blue"}
        assert await Catalog(store, "dir").made() == {TOPIC: frozenset(range(PARTITIONS))}

    asyncio.run(copied())


def test_a_second_copy_replaces_what_an_interrupted_one_has_left_and_another_directory_is_refused() -> None:
    async def copied() -> None:
        store = new_store()
        await copy(store, {"t/old": b"{}", "s/broker/": b"{}", "p/1/0": b"{}"}, "dir")
        with pytest.raises(ClusterNotEmpty, match="another data directory"):
            await check_is_free(store, "other")
        with pytest.raises(ClusterNotEmpty):
            await copy(store, {"t/new": b"{}"}, "other")
        with pytest.raises(ClusterNotEmpty):
            await finish(store, "blue", "other")
        await check_is_free(store, "dir")
        await copy(store, {"t/new": b"{}"}, "dir")
        await finish(store, "blue", "dir")
        assert await all_of(store) == {"cluster": b"blue", "t/new": b"{}"}
        with pytest.raises(ClusterNotEmpty, match="has 2 keys already, such as 'cluster'"):
            await check_is_free(store, "dir")

    asyncio.run(copied())
