"""Consumer groups over HTTP, and the cluster around them."""

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
import pytest

from flymq import FlyMQClient, __version__
from flymq.errors import TransactionAborted
from flymq.testing import TestBroker


def produce(api: httpx.Client, topic: str, *values: object, partition: int = 0) -> None:
    records = [{"partition": partition, "value": value} for value in values]
    assert api.post(f"/topics/{topic}/records", json={"records": records}).status_code == 200


def join(api: httpx.Client, group: str, topic: str) -> str:
    """Create a consumer that reads from the beginning; return its path."""
    created = api.post(f"/groups/{group}/consumers", json={"topics": [topic], "position": "earliest"})
    assert created.status_code == 201
    location: str = created.headers["Location"]
    return location.removeprefix("/api/v1")


def poll(api: httpx.Client, consumer: str, **query: int) -> list[object]:
    answer = api.get(f"{consumer}/records", params=query)
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()["records"]]


# --- consumers ------------------------------------------------------------------------------------------------------


def test_a_consumer_polls_commits_and_leaves(api: httpx.Client, topic: str, group: str) -> None:
    produce(api, topic, 1, 2, 3)
    consumer = join(api, group, topic)
    assert len(api.get(consumer).json()["partitions"]) == 2
    assert poll(api, consumer, limit=2) == [1, 2]
    committed = api.post(f"{consumer}/offsets", json={}).json()["offsets"]
    assert {"topic": topic, "partition": 0, "offset": 2} in committed
    assert poll(api, consumer) == [3]
    assert api.delete(consumer).status_code == 204
    assert api.get(f"{consumer}/records").json()["code"] == "CONSUMER_NOT_FOUND"
    assert poll(api, join(api, group, topic)) == [3]  # what was not committed is read again


def test_a_poll_may_wait_for_a_record(api: httpx.Client, broker: TestBroker, topic: str, group: str) -> None:
    consumer = join(api, group, topic)
    assert poll(api, consumer) == []
    with FlyMQClient(broker.address) as client:
        client.produce(topic, b"1", partition=1)
    assert poll(api, consumer, wait_ms=10_000) == [1]


def test_consumers_of_a_group_share_its_partitions(api: httpx.Client, topic: str, group: str) -> None:
    first = join(api, group, topic)
    produce(api, topic, "a", partition=0)
    produce(api, topic, "b", partition=1)
    # The second waits to be let in until the first comes to its next poll.
    with httpx.Client(base_url=api.base_url, timeout=20) as other:
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(join, other, group, topic)
            seen: list[object] = []
            while not joining.done():
                seen += poll(api, first)
            second = joining.result()
        seen += poll(api, first)
        assignments = [api.get(consumer).json()["partitions"] for consumer in (first, second)]
        assert [len(assigned) for assigned in assignments] == [1, 1]
        assert set(seen + poll(other, second)) == {"a", "b"}
        assert len(api.get(f"/groups/{group}").json()["members"]) == 2


def test_given_offsets_are_committed_and_wrong_ones_named(api: httpx.Client, topic: str, group: str) -> None:
    consumer = join(api, group, topic)
    offsets = [{"topic": topic, "partition": 0, "offset": 7}, {"topic": topic, "partition": 9, "offset": 7}]
    good, bad = api.post(f"{consumer}/offsets", json={"offsets": offsets}).json()["offsets"]
    assert "error" not in good
    assert bad["error"]["code"] == "PARTITION_NOT_FOUND"


# --- administration -------------------------------------------------------------------------------------------------


def test_a_group_is_described_with_its_lag(api: httpx.Client, topic: str, group: str) -> None:
    produce(api, topic, 1, 2, 3)
    consumer = join(api, group, topic)
    poll(api, consumer, limit=1)
    api.post(f"{consumer}/offsets", json={})
    found = api.get(f"/groups/{group}").json()
    assert (found["state"], found["lag"], found["assignor"]) == ("stable", 2, "range")
    (member,) = found["members"]
    assert (member["client_id"], member["host"]) == ("http", "127.0.0.1")
    position = found["positions"][0]
    assert (position["offset"], position["end_offset"], position["lag"]) == (1, 3, 2)
    assert position["lag_ms"] >= 0
    assert group in [each["name"] for each in api.get("/groups?limit=1000").json()["groups"]]
    assert api.delete(f"/groups/{group}").json()["code"] == "GROUP_NOT_EMPTY"
    api.delete(consumer)
    assert api.delete(f"/groups/{group}").status_code == 204
    assert api.get(f"/groups/{group}").json()["code"] == "GROUP_NOT_FOUND"


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        ({"position": "earliest"}, 0),
        ({"position": "latest"}, 3),
        ({"timestamp": 0}, 0),
        ({"timestamp": 1 << 50}, 3),
    ],
)
def test_a_group_can_be_moved(api: httpx.Client, topic: str, group: str, where: dict[str, object], offset: int) -> None:
    produce(api, topic, 1, 2, 3)
    tried = api.post(f"/groups/{group}/reset", json={"topics": [topic], "validate_only": True, **where}).json()
    assert tried["offsets"][0]["offset"] == offset
    assert api.get(f"/groups/{group}").status_code == 404
    api.post(f"/groups/{group}/reset", json={"topics": [topic], **where})
    assert api.get(f"/groups/{group}").json()["positions"][0]["offset"] == offset


def test_a_group_can_be_moved_to_offsets(api: httpx.Client, topic: str, group: str) -> None:
    produce(api, topic, 1, 2, 3)
    wanted = [{"topic": topic, "partition": 0, "offset": 2}, {"topic": topic, "partition": 0, "offset": 99}]
    moved, refused = api.post(f"/groups/{group}/reset", json={"offsets": wanted}).json()["offsets"]
    assert (moved["offset"], refused["error"]["code"]) == (2, "OFFSET_OUT_OF_RANGE")
    assert api.post(f"/groups/{group}/reset", json={}).json()["code"] == "INVALID_REQUEST"


def test_the_cluster_its_brokers_and_transactions_are_shown(api: httpx.Client, broker: TestBroker, topic: str) -> None:
    with FlyMQClient(broker.address) as client, client.transaction("billing") as transaction:
        transaction.produce(topic, b"1")
    cluster = api.get("/cluster").json()
    assert (cluster["brokers"], cluster["controller"]) == (1, 0)
    assert cluster["topics"] >= 1
    (found,) = api.get("/brokers").json()["brokers"]
    assert found == api.get("/brokers/0").json()
    assert (found["port"], found["version"]) == (broker.port, __version__)
    assert api.get("/brokers/7").status_code == 404
    transactions = api.get("/transactions").json()["transactions"]
    assert "billing" in [each["id"] for each in transactions]
    assert api.get("/transactions/billing").json()["state"] in ("committing", "committed")
    assert api.get("/transactions/absent").json()["code"] == "TRANSACTION_NOT_FOUND"


def test_a_transaction_that_nobody_ends_can_be_aborted(api: httpx.Client, broker: TestBroker, topic: str) -> None:
    path = "/transactions/nightly%2Fbilling/abort"
    with FlyMQClient(broker.address) as client:
        transaction = client.begin_transaction("nightly/billing")
        transaction.produce(topic, b"half of it")
        assert client.produce(topic, b"behind it", partition=0) >= 0
        assert api.post(path).json()["state"] in ("aborting", "aborted")
        with pytest.raises(TransactionAborted):
            transaction.commit()
    pages = [api.get(f"/topics/{topic}/partitions/{number}/records").json() for number in (0, 1)]
    assert [record["value"] for page in pages for record in page["records"]] == ["behind it"]
    again = api.post(path)
    assert (again.status_code, again.json()["code"]) == (409, "INVALID_TRANSACTION_STATE")
    assert api.post("/transactions/absent/abort").status_code == 404


@pytest.mark.parametrize("name", ["team/billing", "100%", "%2F", "a b?c#d", "Zürich/é", "x/"])
def test_a_group_may_be_called_anything(api: httpx.Client, broker: TestBroker, topic: str, name: str) -> None:
    produce(api, topic, 1, 2)
    with FlyMQClient(broker.address) as client, client.consumer(topic, group=name) as consumer:
        assert len(consumer.poll(10_000)) == 2
        consumer.commit()
    group = f"/groups/{quote(name, safe='')}"
    described = api.get(group).json()
    assert (described["name"], described["lag"]) == (name, 0)
    made = api.post(f"{group}/consumers", json={"topics": [topic]})
    assert made.status_code == 201
    at = made.headers["Location"].removeprefix("/api/v1")
    assert api.get(at).json()["group"] == name
    assert api.delete(at).status_code == 204
    assert api.delete(group).status_code == 204
