"""MirrorMaker 2 in both directions between two brokers: records, settings of topics, and offsets of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.clients.jvm.java import Java
from tests.clients.jvm.topics import Reader, create, wait_until, write
from tests.clients.servers import SERVERS, Server, running_server

RECORDS = 200
SETTINGS = {
    "clusters": "west, east",
    "west->east.enabled": "true",
    "east->west.enabled": "true",
    "topics": "orders|clicks",
    "groups": "billing",
    "sync.group.offsets.enabled": "true",
    "offset.lag.max": 0,  # offsets are translated exactly, and not to at most 100 before
    "replication.factor": 1,
    "checkpoints.topic.replication.factor": 1,
    "heartbeats.topic.replication.factor": 1,
    "offset-syncs.topic.replication.factor": 1,
    "offset.storage.replication.factor": 1,
    "status.storage.replication.factor": 1,
    "config.storage.replication.factor": 1,
    # The rest saves time.
    "offset.storage.partitions": 1,
    "status.storage.partitions": 1,
    "tasks.max": 1,
    "scheduled.rebalance.max.delay.ms": 0,
    "refresh.topics.interval.seconds": 1,
    "refresh.groups.interval.seconds": 1,
    "sync.topic.configs.interval.seconds": 1,
    "emit.checkpoints.interval.seconds": 1,
    "sync.group.offsets.interval.seconds": 1,
    "offset.flush.interval.ms": 500,
    "plugin.discovery": "service_load",
}


@pytest.fixture(scope="module", params=SERVERS)
def sites(request, tmp_path_factory) -> Iterator[tuple[Server, Server]]:
    folders = [tmp_path_factory.mktemp(name) for name in ("west", "east")]
    with running_server(request.param, folders[0]) as west, running_server(request.param, folders[1]) as east:
        create(west.address, "orders", partitions=1, settings={"retention.ms": "7200000"})
        create(east.address, "clicks", partitions=1)
        yield west, east


@pytest.fixture(scope="module")
def mirrors(sites, kafka4: Java, tmp_path_factory) -> Iterator[Path]:
    west, east = sites
    folder = tmp_path_factory.mktemp("mirrors")
    own = {"west.bootstrap.servers": west.address, "east.bootstrap.servers": east.address}
    (folder / "mm2.properties").write_text("".join(f"{key} = {value}\n" for key, value in {**own, **SETTINGS}.items()))
    program = "org.apache.kafka.connect.mirror.MirrorMaker"
    with kafka4.start(program, folder / "mm2.properties", log=folder / "log"):
        yield folder


@pytest.mark.shows("copy topics and offsets between brokers", client="MirrorMaker 2")
def test_mirror_maker_copies_topics_in_both_directions_and_none_twice(sites, mirrors):
    west, east = sites
    write(west.address, "orders", (f"order {number}" for number in range(RECORDS)))
    write(east.address, "clicks", (f"click {number}" for number in range(RECORDS)))
    for site, topic, value in ((east, "west.orders", "order"), (west, "east.clicks", "click")):
        reader = Reader(site.address, topic)
        assert reader.read(RECORDS) == [f"{value} {number}" for number in range(RECORDS)]
        reader.close()
        assert "west.east.clicks" not in topics_of(east)
        assert "east.west.orders" not in topics_of(west)


def topics_of(site: Server) -> set[str]:
    return set(AdminClient({"bootstrap.servers": site.address}).list_topics(timeout=10).topics)


def committed(site: Server, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": site.address, "group.id": "billing"})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    consumer.close()
    offset: int = found.offset
    return offset


@pytest.mark.shows("copy topics and offsets between brokers", client="MirrorMaker 2")
def test_mirror_maker_translates_the_offsets_of_groups(sites, mirrors):
    west, east = sites
    consumer = Consumer({"bootstrap.servers": west.address, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, RECORDS)], asynchronous=False)
    consumer.close()
    wait_until(lambda: committed(east, "west.orders") == RECORDS)


@pytest.mark.shows("copy topics and offsets between brokers", client="MirrorMaker 2")
def test_mirror_maker_copies_the_settings_of_topics(sites, mirrors):
    _, east = sites
    wait_until(lambda: "west.orders" in topics_of(east))
    wait_until(lambda: setting(east, "west.orders", "retention.ms") == "7200000")


def setting(site: Server, topic: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": site.address})
    (told,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    value: str = told.result()[name].value
    return value
