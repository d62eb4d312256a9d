"""Topics over HTTP."""

import shutil
import subprocess

import httpx
import pytest

from flymq import FlyMQClient
from flymq.testing import TestBroker, running_broker

CURL = shutil.which("curl")


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_the_quick_start_works_as_printed(broker: TestBroker) -> None:
    def curl(arguments: str) -> str:
        command = f"curl -sS {arguments}".replace("localhost:8080", f"localhost:{broker.http_port}")
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout

    assert '"status":"ok"' in curl("http://localhost:8080/health")
    created = curl(
        """-i -X POST http://localhost:8080/api/v1/topics \
     -H "Content-Type: application/json" \
     -d '{
       "name": "test-topic",
       "partitions": 10,
       "replication_factor": 3
     }'"""
    )
    assert created.startswith("HTTP/1.1 201 Created\n")
    assert "location: /api/v1/topics/test-topic\n" in created
    assert "replication_factor 3 was lowered to 1" in created
    with FlyMQClient(broker.address) as client:
        assert client.produce("test-topic", "Hello World!", key="key1").offset == 0


def test_more_replicas_than_brokers_are_refused_but_in_dev_mode() -> None:
    with running_broker(settings={"broker.dev": False}) as broker:
        wanted = {"name": "orders", "replication_factor": 3}
        refused = httpx.post(f"http://127.0.0.1:{broker.port}/api/v1/topics", json=wanted)
    assert refused.status_code == 400
    assert refused.json()["code"] == "INVALID_REPLICATION_FACTOR"


def test_a_topic_lives_from_creation_to_deletion(api: httpx.Client) -> None:
    created = api.post("/topics", json={"name": "life", "partitions": 3, "config": {"retention.ms": 60_000}})
    assert created.status_code == 201
    found = api.get(created.headers["Location"].removeprefix("/api/v1")).json()
    assert (found["name"], found["partitions"], found["replication_factor"]) == ("life", 3, 1)
    assert (found["config"]["retention.ms"], found["overrides"]) == (60_000, ["retention.ms"])
    assert api.post("/topics", json={"name": "life"}).json()["code"] == "TOPIC_EXISTS"
    assert api.delete("/topics/life").status_code == 204
    assert api.get("/topics/life").json()["code"] == "TOPIC_NOT_FOUND"


def test_a_topic_can_grow_and_change(api: httpx.Client, topic: str) -> None:
    changed = api.patch(f"/topics/{topic}", json={"partitions": 5, "config": {"max.message.bytes": 2000}}).json()
    assert (changed["partitions"], changed["config"]["max.message.bytes"]) == (5, 2000)
    assert api.patch(f"/topics/{topic}", json={"partitions": 1}).json()["code"] == "INVALID_PARTITIONS"
    assert api.patch(f"/topics/{topic}/config", json={"config": {"max.message.bytes": None}}).json()["overrides"] == []
    assert api.get(f"/topics/{topic}/config").json()["config"]["max.message.bytes"] == 1 << 20


def test_a_change_that_is_half_wrong_changes_nothing(api: httpx.Client, topic: str) -> None:
    refused = api.patch(f"/topics/{topic}", json={"partitions": 1, "config": {"retention.ms": 1}})
    assert refused.json()["code"] == "INVALID_PARTITIONS"
    refused = api.patch(f"/topics/{topic}", json={"partitions": 9, "config": {"no.such": 1}})
    assert refused.json()["code"] == "INVALID_SETTING"
    found = api.get(f"/topics/{topic}").json()
    assert (found["partitions"], found["overrides"]) == (2, [])


def test_partitions_tell_where_they_begin_and_end(api: httpx.Client, topic: str) -> None:
    api.post(f"/topics/{topic}/records", json={"records": [{"value": 1, "partition": 1, "timestamp": 1000}]})
    _, second = api.get(f"/topics/{topic}/partitions").json()["partitions"]
    assert (second["start_offset"], second["end_offset"], second["leader"], second["offline"]) == (0, 1, 0, False)
    assert second["bytes"] > 0
    offsets = api.get(f"/topics/{topic}/partitions/1/offsets", params={"timestamp": 1000}).json()
    assert offsets == {"start_offset": 0, "end_offset": 1, "last_stable_offset": 1, "at_timestamp": 0}
    assert api.get(f"/topics/{topic}/partitions/1/offsets?timestamp=1001").json()["at_timestamp"] is None


def test_a_long_list_comes_in_pages(api: httpx.Client) -> None:
    names = [f"paged-{number}" for number in range(5)]
    for name in names:
        api.post("/topics", json={"name": name, "partitions": 1})
    seen: list[str] = []
    token: str | None = ""
    while token is not None:
        page = api.get("/topics", params={"limit": 2, "page_token": token}).json()
        assert len(page["topics"]) <= 2
        seen += [topic["name"] for topic in page["topics"]]
        token = page["next_page_token"]
    assert seen == sorted(seen)
    assert set(names) <= set(seen)
    assert not any(name.startswith("__") for name in seen)
    internal = api.get("/topics", params={"internal": "true"}).json()["topics"]
    assert "__offsets" in [topic["name"] for topic in internal]


def test_what_is_wrong_is_said_with_a_code_and_a_hint(api: httpx.Client, topic: str) -> None:
    cases = [
        (api.get("/topics/absent"), 404, "TOPIC_NOT_FOUND"),
        (api.get(f"/topics/{topic}/partitions/7/records"), 404, "PARTITION_NOT_FOUND"),
        (api.get("/no/such/thing"), 404, "NO_SUCH_RESOURCE"),
        (api.put("/topics"), 405, "METHOD_NOT_ALLOWED"),
        (api.post("/topics", json={"name": "a/b"}), 400, "INVALID_TOPIC_NAME"),
        (api.post("/topics", json={"nmae": "a"}), 400, "INVALID_REQUEST"),
        (api.post("/topics", content=b"{", headers={"Content-Type": "application/json"}), 400, "INVALID_REQUEST"),
        (api.post("/topics", content=b"{}", headers={"Content-Type": "text/csv"}), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (api.get("/topics", params={"limit": "many"}), 400, "INVALID_REQUEST"),
        (api.get("/topics", params={"page_token": "!"}), 400, "INVALID_REQUEST"),
        (api.delete("/topics/__offsets"), 403, "INTERNAL_TOPIC"),
        (api.get(f"/topics/{topic}/partitions/0/records", params={"offset": 9}), 416, "OFFSET_OUT_OF_RANGE"),
    ]
    for answer, status, code in cases:
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["status"] == status
        assert problem["type"] == f"urn:flymq:error:{code}"
        assert problem["hint"]
        assert problem["detail"]
    assert api.put("/topics").headers["Allow"] == "GET, HEAD, OPTIONS, POST"


def test_a_topic_may_have_the_longest_name(api: httpx.Client) -> None:
    name = "n" * 249
    assert api.post("/topics", json={"name": name, "partitions": 1}).status_code == 201
    assert api.post(f"/topics/{name}/records", json={"records": [{"value": 1}]}).json()["written"] == 1
    assert api.post("/topics", json={"name": name + "n"}).json()["code"] == "INVALID_TOPIC_NAME"


@pytest.mark.parametrize(
    "query", ["timestamp=null", "timestamp=1.0", "timestamp=-1", "timestamp=", "timestamp=1&timestamp=2"]
)
def test_a_parameter_that_is_no_number_is_refused(api: httpx.Client, topic: str, query: str) -> None:
    answer = api.get(f"/topics/{topic}/partitions/0/offsets?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REQUEST")


def test_whatever_happens_to_a_topic_is_a_line_in_the_log(api: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "flymq"):
        api.post("/topics", json={"name": "logged", "partitions": 1})
        api.patch("/topics/logged", json={"partitions": 2})
        api.patch("/topics/logged/config", json={"config": {"retention.ms": 1000, "segment.bytes": None}})
        api.delete("/topics/logged")
    assert caplog.messages == [
        "created the topic logged with 1 partitions, records are kept for 7 days or 1024 MiB a partition",
        "increased the partitions of the topic logged from 1 to 2",
        "changed the topic logged: retention.ms=1000, segment.bytes=default",
        "deleted the topic logged",
    ]
