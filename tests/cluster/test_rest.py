"""HTTP clients need not know leaders: any broker takes and gives records of every partition."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.cluster.brokers import WITHIN_S, Brokers


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers, none of which is stopped."""
    brokers = Brokers(tmp_path_factory.mktemp("c"), own_settings=lambda number: {"broker.rack": f"rack-{number}"})
    try:
        yield brokers
    finally:
        brokers.close()


def http(brokers: Brokers, broker: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://{brokers[broker].address}/api/v1", timeout=WITHIN_S)


def create(brokers: Brokers, topic: str) -> None:
    with http(brokers, 1) as client:
        made = client.post("/topics", json={"name": topic, "partitions": 6, "replication_factor": 3})
        assert made.status_code == 201, made.text
    brokers.until_in_sync(topic)


def offsets(client: httpx.Client, topic: str) -> list[tuple[int, int]]:
    return [
        (each["leader"], each["end_offset"]) for each in client.get(f"/topics/{topic}/partitions").json()["partitions"]
    ]


def test_any_broker_takes_and_gives_records_of_partitions_that_others_lead(shared: Brokers) -> None:
    create(shared, "orders")
    assert len({shared.leader_of("orders", number) for number in range(6)}) > 1
    for broker in (1, 2, 3):
        with http(shared, broker) as client:
            records = [{"value": f"{broker}-{number}", "partition": number} for number in range(6)]
            answer = client.post("/topics/orders/records?acks=all", json={"records": records})
            assert answer.status_code == 200, answer.text
            assert [each["offset"] for each in answer.json()["results"]] == [broker - 1] * 6
    for broker in (1, 2, 3):
        with http(shared, broker) as client:
            assert {end for _, end in offsets(client, "orders")} == {3}
            for number in range(6):
                read: Any = client.get(f"/topics/orders/partitions/{number}/records").json()
                assert [each["value"] for each in read["records"]] == [f"{each}-{number}" for each in (1, 2, 3)]
                assert (read["next_offset"], read["end_offset"]) == (3, 3)
                last = client.get(f"/topics/orders/partitions/{number}/records?offset=2&limit=1").json()
                assert [each["offset"] for each in last["records"]] == [2]
                where = client.get(f"/topics/orders/partitions/{number}/offsets").json()
                assert (where["start_offset"], where["end_offset"]) == (0, 3)


def test_a_read_of_what_another_broker_leads_waits_for_a_record(shared: Brokers) -> None:
    create(shared, "slow")
    leader = shared.leader_of("slow")
    other = leader % 3 + 1
    with http(shared, other) as reader, http(shared, leader) as writer, ThreadPoolExecutor(1) as pool:
        nothing = reader.get("/topics/slow/partitions/0/records?wait_ms=50").json()
        assert nothing["records"] == []
        reading = pool.submit(reader.get, "/topics/slow/partitions/0/records?wait_ms=30000")
        writer.post("/topics/slow/records", json={"records": [{"value": 1, "partition": 0}]})
        found = reading.result(WITHIN_S).json()
        assert [each["value"] for each in found["records"]] == [1]


def test_records_that_others_lead_are_deleted_by_way_of_any_broker(shared: Brokers) -> None:
    create(shared, "old")
    other = shared.leader_of("old") % 3 + 1
    with http(shared, other) as client:
        client.post("/topics/old/records?acks=all", json={"records": [{"value": 1, "partition": 0}] * 4})
        deleted = client.delete("/topics/old/partitions/0/records?before_offset=3")
        assert deleted.json() == {"start_offset": 3}, deleted.text
        [record] = client.get("/topics/old/partitions/0/records").json()["records"]
        assert record["offset"] == 3


def test_any_broker_lists_all_brokers_and_counts_for_the_cluster(shared: Brokers) -> None:
    answers = []
    for broker in (1, 2, 3):
        with http(shared, broker) as client:
            brokers = client.get("/brokers").json()["brokers"]
            assert [(each["id"], each["rack"], each["live"]) for each in brokers] == [
                (number, f"rack-{number}", True) for number in (1, 2, 3)
            ]
            cluster = client.get("/cluster").json()
            answers.append((cluster["id"], cluster["controller"], cluster["brokers"], cluster["offline_partitions"]))
    assert answers[0][2:] == (3, 0)
    assert answers[1:] == answers[:-1]


def test_an_error_of_the_leader_is_that_of_the_request(shared: Brokers) -> None:
    create(shared, "errors")
    other = shared.leader_of("errors") % 3 + 1
    with http(shared, other) as client:
        refused = client.get("/topics/errors/partitions/0/records?offset=99")
        assert (refused.status_code, refused.json()["code"]) == (416, "OFFSET_OUT_OF_RANGE"), refused.text
