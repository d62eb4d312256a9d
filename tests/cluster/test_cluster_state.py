"""Any broker answers for the whole cluster: `flymq cluster status`, `flymq topic describe`, and the SDK."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import httpx
from tests.cluster.brokers import WITHIN_S, Brokers

import flymq


def cli(broker: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flymq", "--server", broker, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def status(broker: str) -> tuple[int, Any]:
    done = cli(broker, "cluster", "status", "-o", "json")
    return done.returncode, json.loads(done.stdout)


def metrics(address: str) -> dict[str, float]:
    lines = httpx.get(f"http://{address}/metrics").text.splitlines()
    found = (re.fullmatch(r"(\w+) (\S+)", line) for line in lines)
    return {match[1]: float(match[2]) for match in found if match is not None}


def test_every_broker_describes_a_topic_with_the_offsets_of_its_leaders(cluster: Brokers) -> None:
    with flymq.FlyMQClient(cluster.addresses, acks="all") as client:
        client.admin.create_topic("orders", partitions=3, replication_factor=2)
        for number in range(30):
            client.produce("orders", b"x" * 100, partition=number % 3)
    seen = []
    for broker in (1, 2, 3):
        found = json.loads(cli(cluster[broker].address, "topic", "describe", "orders", "-o", "json").stdout)
        seen.append([(each["leader"], each["replicas"], each["end_offset"]) for each in found["partitions"]])
        assert all(each["size_bytes"] > 1000 for each in found["partitions"])
    assert [end_offset for _, _, end_offset in seen[0]] == [10, 10, 10]
    assert seen[1:] == seen[:-1]


def test_the_status_shows_brokers_that_are_gone_replicas_behind_and_partitions_offline(cluster: Brokers) -> None:
    with flymq.FlyMQClient(cluster.addresses, acks="all") as client:
        client.admin.create_topic("orders", partitions=1, replication_factor=3)
        client.admin.create_topic("single", partitions=6, replication_factor=1)
        cluster.until_in_sync("orders")
        code, found = status(cluster[2].address)
        assert (code, found["offline"]) == (0, 0)
        assert [each["broker"] for each in found["brokers"] if each["live"]] == [1, 2, 3]
        assert found["controller"] in (1, 2, 3)
        gone = cluster.leader_of("orders")
        cluster[gone].kill()
        left = [number for number in (1, 2, 3) if number != gone]
        cluster.store.until(
            lambda image: image.members.live == set(left) and sorted(image.get("orders").partitions[0].isr) == left,
            "the broker is gone",
        )
        for _ in range(5):
            client.produce("orders", b"more")
    offline = sum(state.replicas == [gone] for topic in cluster.store.image for state in topic.partitions)
    assert offline > 0
    for broker in left:
        code, found = status(cluster[broker].address)
        while found["offline"] < offline:  # it has not read the change yet
            code, found = status(cluster[broker].address)
        assert (code, found["offline"]) == (1, offline)
        [orders] = [each for each in found["problems"] if each["topic"] == "orders"]
        assert sorted(orders["isr"]) == left
        lags = {each["broker"]: each["records"] for each in orders["lags"]}
        assert lags.keys() == {1, 2, 3} - {orders["leader"]}
        assert lags[gone] == -1  # it has not fetched from the new leader
    shown = cli(cluster[left[0]].address, "cluster", "status")
    assert shown.returncode == 1
    assert f"{gone}: unknown" in shown.stdout
    assert f"{offline} partitions are offline" in shown.stderr or offline == 1
    pages = [metrics(cluster[broker].address) for broker in left]
    assert {page["flymq_partitions_without_leader"] for page in pages} == {offline}
    assert sum(page["flymq_partitions_under_replicated"] for page in pages) == found["under_replicated"]
    assert sum(page["flymq_replication_bytes_in_total"] for page in pages) > 0
    assert sum(page["flymq_replication_bytes_out_total"] for page in pages) > 0
    health = httpx.get(f"http://{cluster[left[0]].address}/health").json()
    assert health["status"] == "degraded"
    assert f"{offline} partitions of the cluster have no leader" in health["problems"][-1]
    described = cli(cluster[left[0]].address, "topic", "describe", "single")
    assert "has no leader" in described.stderr
