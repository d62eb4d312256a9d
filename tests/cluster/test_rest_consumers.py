"""Consumers over HTTP run on the coordinator of their group, and read from all leaders."""

from __future__ import annotations

from typing import Any

import httpx
from tests.cluster.brokers import WITHIN_S, Brokers

from flymq import FlyMQClient


def http(brokers: Brokers, broker: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://{brokers[broker].address}/api/v1", timeout=WITHIN_S)


def test_a_consumer_reads_what_any_broker_leads_and_other_brokers_name_the_coordinator(cluster: Brokers) -> None:
    with FlyMQClient(cluster.addresses, acks="all") as client:
        client.create_topic("polled", partitions=6, replication_factor=1)
        for number in range(6):
            client.produce("polled", b"old", partition=number)
    assert {cluster.leader_of("polled", number) for number in range(6)} == {1, 2, 3}
    created: dict[int, Any] = {}
    refused: dict[int, Any] = {}
    wanted = {"topics": ["polled"], "position": "earliest"}
    for broker in (1, 2, 3):
        with http(cluster, broker) as browser:
            answer = browser.post("/groups/pollers/consumers", json=wanted)
            (created if answer.status_code == 201 else refused)[broker] = answer
    [coordinator] = created
    for answer in refused.values():
        assert (answer.status_code, answer.json()["code"]) == (503, "NOT_COORDINATOR")
        assert f"broker {coordinator} at {cluster[coordinator].address}" in answer.json()["detail"]

    with http(cluster, coordinator) as browser:
        path = created[coordinator].headers["Location"].removeprefix("/api/v1")
        assert read(browser, path, 6) == [(number, 0) for number in range(6)]
        assert browser.post(f"{path}/offsets", json={}).status_code == 200
        with FlyMQClient(cluster.addresses, acks="all") as client:
            for number in range(6):
                client.produce("polled", b"new", partition=number)
        assert read(browser, path, 6) == [(number, 1) for number in range(6)]
        assert browser.delete(path).status_code == 204
        again = browser.post("/groups/pollers/consumers", json=wanted)
        path = again.headers["Location"].removeprefix("/api/v1")
        assert read(browser, path, 6) == [(number, 1) for number in range(6)], "from the committed offsets"
        browser.delete(path)


def read(browser: httpx.Client, path: str, count: int) -> list[tuple[int, int]]:
    """Poll until so many records have come; return their partitions and offsets."""
    found: list[tuple[int, int]] = []
    while len(found) < count:
        answer: Any = browser.get(f"{path}/records?wait_ms=5000")
        assert answer.status_code == 200, answer.text
        polled = [(each["partition"], each["offset"]) for each in answer.json()["records"]]
        assert polled, f"nothing more came than {found}"
        found += polled
    return sorted(found)
