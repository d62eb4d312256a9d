"""What lies in the data directory of a broker that was away, emptied, or is not its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.brokers import Brokers

from flymq import FlyMQClient


def folders_of(data_dir: Path, topic: str) -> list[Path]:
    return list((data_dir / "topics").glob(f"{topic}~*"))


def produce(cluster: Brokers, topic: str, values: Sequence[str]) -> None:
    with FlyMQClient(cluster.addresses, acks="all") as client:
        client.create_topic(topic, partitions=1, exist_ok=True)
        client.produce_batch(topic, values)
    cluster.until_in_sync(topic)


def test_a_topic_that_was_deleted_while_a_broker_was_down_is_removed_when_it_is_back(cluster: Brokers) -> None:
    produce(cluster, "orders", ["tea", "milk"])
    away = cluster[3]
    away.stop()
    assert len(folders_of(away.data_dir, "orders")) == 1
    with FlyMQClient(cluster[1].address) as client:
        client.delete_topic("orders")
    away.start()
    assert folders_of(away.data_dir, "orders") == []
    for broker in (cluster[1], cluster[2]):
        assert folders_of(broker.data_dir, "orders") == []


def test_an_emptied_directory_is_filled_by_the_others(cluster: Brokers) -> None:
    produce(cluster, "orders", [f"order {number}" for number in range(100)])
    emptied = cluster[2]
    emptied.stop()
    shutil.rmtree(emptied.data_dir)
    emptied.start()
    cluster.until_in_sync("orders")
    logs = [
        next(folders_of(cluster[number].data_dir, "orders")[0].glob("0/*.log")).read_bytes() for number in (1, 2, 3)
    ]
    assert logs[0] and logs.count(logs[0]) == 3


def test_a_broker_refuses_the_directory_of_another_one(cluster: Brokers) -> None:
    other = cluster[3]
    other.stop()
    command = [sys.executable, "-m", "flymq", "server", "start", f"--data-dir={other.data_dir}", "--id=4", "--port=0"]
    settings = [
        *(f"--set={name}={value}" for name, value in cluster.store.settings.items()),
        "--set=listener.http_port=-1",
    ]
    refused = subprocess.run([*command, *settings], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert "belongs to broker 3 of the cluster" in refused.stderr
    assert "Give this broker its own --data-dir" in refused.stderr


def test_an_emptied_directory_of_the_last_replica_in_sync_does_not_empty_the_others(cluster: Brokers) -> None:
    with FlyMQClient(cluster.addresses, acks="all") as client:
        client.create_topic("kept", partitions=1, replication_factor=2)
        client.produce("kept", b"tea")
        leader = cluster.leader_of("kept")
        other = next(number for number in cluster.topic("kept").partitions[0].replicas if number != leader)
        cluster[other].kill()
        cluster.until_in_sync("kept", replicas=1)
        client.produce("kept", b"coffee")
        cluster[leader].kill()
        shutil.rmtree(cluster[leader].data_dir)
        cluster[other].start()
        cluster.store.until(lambda image: image.members.find(leader) is None, "its registration has ended")
        cluster[leader].start()
        cluster.store.until(lambda image: len(image.members.live) == 3, "all brokers are back")
        assert cluster.leader_of("kept") == -1, "only an unclean election, which somebody asks for, lets the other lead"
