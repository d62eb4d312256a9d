"""Writing and reading records over HTTP."""

import gzip
import json
import socket
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import httpx

from flymq import FlyMQClient
from flymq.testing import TestBroker, running_broker

NDJSON = {"Content-Type": "application/x-ndjson"}


def produce(api: httpx.Client, topic: str, *records: Mapping[str, object], **query: str) -> httpx.Response:
    return api.post(f"/topics/{topic}/records", json={"records": records}, params=query)


def read(api: httpx.Client, topic: str, partition: int = 0, **query: str | int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = api.get(f"/topics/{topic}/partitions/{partition}/records", params=query).json()[
        "records"
    ]
    return found


# --- write ----------------------------------------------------------------------------------------------------------


def test_records_are_read_as_they_were_written(api: httpx.Client, topic: str) -> None:
    written = produce(
        api,
        topic,
        {"partition": 0, "key": "k", "value": {"n": 1, "text": "é"}, "timestamp": 5},
        {"partition": 0, "value": "text", "encoding": "string", "headers": [{"name": "h", "value": "v"}]},
        {"partition": 0, "value": b64encode(b"\xff\x00").decode(), "encoding": "base64"},
        {"partition": 0, "key": "gone", "value": None},
    )
    assert written.status_code == 200
    assert written.json() == {
        "written": 4,
        "failed": 0,
        "results": [{"partition": 0, "offset": number} for number in range(4)],
    }
    first, second, third, fourth = read(api, topic)
    assert (first["key"], first["value"], first["encoding"]) == ("k", {"n": 1, "text": "é"}, "json")
    assert (first["offset"], first["timestamp"]) == (0, 5)
    assert (second["value"], second["encoding"]) == ("text", "string")
    assert second["headers"] == [{"name": "h", "value": "v", "encoding": "string"}]
    assert (third["value"], third["encoding"]) == ("/wA=", "base64")
    assert (fourth["key"], fourth["value"]) == ("gone", None)


def test_what_http_writes_the_sdk_reads(broker: TestBroker, api: httpx.Client, topic: str) -> None:
    produce(api, topic, {"partition": 1, "key": "k", "value": {"a": [1, 2]}})
    with FlyMQClient(broker.address) as client:
        assert client.consume(topic, 0, partition=1).value == b'{"a":[1,2]}'


def test_each_record_fails_on_its_own(api: httpx.Client, topic: str) -> None:
    api.patch(f"/topics/{topic}/config", json={"config": {"max.message.bytes": 1000}})
    answer = produce(
        api,
        topic,
        {"partition": 0, "value": "fits"},
        {"partition": 9, "value": "nowhere"},
        {"partition": 0, "value": "x" * 2000},
        {"partition": 0, "value": 7, "encoding": "string"},
        {"partition": 0, "value": "###", "encoding": "base64"},
        {"partition": 0, "value": "fits too"},
    )
    assert answer.status_code == 207
    results = answer.json()["results"]
    codes = [result["error"]["code"] if "error" in result else result["offset"] for result in results]
    assert codes == [0, "PARTITION_NOT_FOUND", "MESSAGE_TOO_LARGE", "INVALID_REQUEST", "INVALID_REQUEST", 1]
    assert (answer.json()["written"], answer.json()["failed"]) == (2, 4)


def test_a_record_without_a_key_is_refused_in_a_compacted_topic_and_the_others_are_written(
    api: httpx.Client,
) -> None:
    api.post("/topics", json={"name": "prices", "config": {"cleanup.policy": "compact"}}).raise_for_status()
    answer = produce(api, "prices", {"key": "a", "value": 1}, {"value": 2}, {"key": "b", "value": 3})
    assert answer.status_code == 207
    first, second, third = answer.json()["results"]
    assert second["error"]["code"] == "KEY_REQUIRED"
    assert second["error"]["status"] == 400
    assert "error" not in first
    assert "error" not in third


def test_a_record_with_a_time_far_ahead_is_refused_and_the_others_are_written(api: httpx.Client, topic: str) -> None:
    answer = produce(api, topic, {"value": 1}, {"value": 2, "timestamp": 1 << 50}, {"value": 3})
    assert answer.status_code == 207
    first, second, third = answer.json()["results"]
    assert second["error"]["code"] == "INVALID_TIMESTAMP"
    assert second["error"]["status"] == 400
    assert "error" not in first
    assert "error" not in third


def test_records_are_written_to_a_topic_that_compresses_them(api: httpx.Client) -> None:
    config = {"compression.type": "zstd", "min.cleanable.dirty.ratio": 0.25, "flush.ms": 5}
    api.post("/topics", json={"name": "packed", "partitions": 1, "config": config}).raise_for_status()
    assert [each["offset"] for each in produce(api, "packed", {"value": 1}, {"value": 2}).json()["results"]] == [0, 1]
    assert [record["value"] for record in read(api, "packed")] == [1, 2]
    found = api.get("/topics/packed/config").json()
    assert {name: found["config"][name] for name in config} == {**config, "flush.ms": "5"}


def test_a_line_is_a_record(api: httpx.Client, topic: str) -> None:
    lines = b"".join(b'{"partition": 0, "value": %d}\n' % number for number in range(20_000))
    answer = api.post(f"/topics/{topic}/records", content=lines, headers=NDJSON)
    assert answer.status_code == 200
    assert [result["offset"] for result in answer.json()["results"]] == list(range(20_000))
    assert [record["value"] for record in read(api, topic, offset=19_990)] == list(range(19_990, 20_000))


def test_a_broken_line_fails_alone(api: httpx.Client, topic: str) -> None:
    lines = b'{"partition": 0, "value": 1}\n\nnonsense\n{"partition": 0, "value": 2}'
    answer = api.post(f"/topics/{topic}/records", content=lines, headers=NDJSON)
    assert answer.status_code == 207
    first, broken, last = answer.json()["results"]
    assert (first["offset"], broken["error"]["code"], last["offset"]) == (0, "INVALID_REQUEST", 1)


def test_a_packed_body_is_unpacked(api: httpx.Client, topic: str) -> None:
    packed = gzip.compress(b'{"partition": 0, "value": "packed"}\n')
    headers = {**NDJSON, "Content-Encoding": "gzip"}
    assert api.post(f"/topics/{topic}/records", content=packed, headers=headers).status_code == 200
    assert read(api, topic)[0]["value"] == "packed"
    cut = api.post(f"/topics/{topic}/records", content=packed[:-9], headers=headers)
    assert (cut.status_code, cut.json()["code"]) == (400, "INVALID_REQUEST")
    other = api.post(f"/topics/{topic}/records", content=packed, headers={**NDJSON, "Content-Encoding": "br"})
    assert other.status_code == 415


def test_a_repeated_request_writes_nothing_and_gets_the_same_answer(api: httpx.Client, topic: str) -> None:
    body = {"records": [{"partition": 0, "value": "once"}]}
    headers = {"Idempotency-Key": "order-17"}
    first = api.post(f"/topics/{topic}/records", json=body, headers=headers)
    again = api.post(f"/topics/{topic}/records", json=body, headers=headers)
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert len(read(api, topic)) == 1
    body["records"][0]["value"] = "something else"
    reused = api.post(f"/topics/{topic}/records", json=body, headers=headers)
    assert (reused.status_code, reused.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


def test_a_request_that_is_repeated_after_a_restart_writes_nothing_either(tmp_path: Path) -> None:
    lines = "".join(f'{{"value": "{number:0>3000}"}}\n' for number in range(400))  # more than one batch may hold
    headers = {**NDJSON, "Idempotency-Key": "order-17"}
    answers = []
    for _ in range(2):
        with (
            running_broker(tmp_path, {"topics.default_partitions": 3}) as broker,
            httpx.Client(base_url=f"http://{broker.address}/api/v1", timeout=20) as api,
        ):
            answers.append(api.post("/topics/orders/records", content=lines, headers=headers))
            ends = [each["end_offset"] for each in api.get("/topics/orders/partitions").json()["partitions"]]
            page = httpx.get(f"http://{broker.address}/metrics").text
    first, again = answers
    assert (first.status_code, first.json()["written"]) == (200, 400)
    assert again.json() == first.json()
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert sum(ends) == 400
    assert 'flymq_messages_in_total{protocol="http"}' not in page, "nothing was written since the restart"


def test_what_of_a_repeated_request_had_failed_is_written(api: httpx.Client, topic: str) -> None:
    headers = {"Idempotency-Key": "order-18"}
    body = {"records": [{"partition": 0, "value": 1}, {"partition": 2, "value": 2}]}
    first = api.post(f"/topics/{topic}/records", json=body, headers=headers)
    assert (first.status_code, first.json()["written"]) == (207, 1)
    api.patch(f"/topics/{topic}", json={"partitions": 3})
    again = api.post(f"/topics/{topic}/records", json=body, headers=headers)
    assert (again.status_code, again.json()["written"]) == (200, 2)
    assert (len(read(api, topic, 0)), len(read(api, topic, 2))) == (1, 1)


def test_records_without_a_partition_follow_their_key(api: httpx.Client, broker: TestBroker, topic: str) -> None:
    (result,) = produce(api, topic, {"key": "user-1", "value": 1}).json()["results"]
    with FlyMQClient(broker.address) as client:
        assert client.produce(topic, b"2", key="user-1").partition == result["partition"]


def test_a_topic_of_the_broker_cannot_be_written(api: httpx.Client) -> None:
    assert produce(api, "__offsets", {"value": 1}).json()["code"] == "INTERNAL_TOPIC"


def test_a_safe_answer_waits_for_the_disk(api: httpx.Client) -> None:
    api.post("/topics", json={"name": "safe", "partitions": 1, "config": {"persistence": "fsync"}})
    assert produce(api, "safe", {"value": 1}, acks="all").json()["written"] == 1
    assert read(api, "safe")[0]["value"] == 1


# --- read -----------------------------------------------------------------------------------------------------------


def test_reading_begins_at_an_offset_a_time_or_an_end(api: httpx.Client, topic: str) -> None:
    produce(api, topic, *({"partition": 0, "value": number, "timestamp": 1000 + number} for number in range(10)))
    path = f"/topics/{topic}/partitions/0/records"
    page = api.get(path, params={"offset": 3, "limit": 2}).json()
    assert ([record["value"] for record in page["records"]], page["next_offset"]) == ([3, 4], 5)
    assert [record["value"] for record in read(api, topic, timestamp=1008)] == [8, 9]
    assert read(api, topic, timestamp=5000) == []
    assert read(api, topic, position="latest") == []
    assert len(read(api, topic)) == 10
    assert api.get(path, params={"offset": 1, "timestamp": 1}).json()["code"] == "INVALID_REQUEST"


def test_a_reader_may_wait_for_the_next_record(api: httpx.Client, broker: TestBroker, topic: str) -> None:
    asking = socket.create_connection(("127.0.0.1", broker.port))
    with closing(asking):
        path = f"/api/v1/topics/{topic}/partitions/0/records?wait_ms=20000"
        asking.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        produce(api, topic, {"partition": 0, "value": "at last"})
        asking.settimeout(10)
        answer = b"".join(iter(lambda: asking.recv(4096), b""))
    assert b"at last" in answer


def test_records_come_as_lines_to_who_accepts_them(api: httpx.Client, topic: str) -> None:
    produce(api, topic, {"partition": 0, "value": {"n": 1}}, {"partition": 0, "value": 2})
    path = f"/topics/{topic}/partitions/0/records"
    lines = api.get(path, headers={"Accept": "application/x-ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.headers["Next-Offset"] == "2"
    assert [json.loads(line)["value"] for line in lines.text.splitlines()] == [{"n": 1}, 2]
    assert api.get(path, headers={"Accept": "text/csv"}).status_code == 406


def test_a_value_that_is_no_json_says_what_it_is(api: httpx.Client, broker: TestBroker, topic: str) -> None:
    with FlyMQClient(broker.address) as client:
        for value in (b'{"a":\n1}', b"plain", b"\xfe\xff", b"null", None):
            client.produce(topic, value, partition=0)
    shown = [(record["value"], record["encoding"]) for record in read(api, topic)]
    assert shown == [({"a": 1}, "json"), ("plain", "string"), ("/v8=", "base64"), ("null", "string"), (None, "json")]
    assert [record["encoding"] for record in read(api, topic, encoding="base64")][:4] == ["base64"] * 4


def test_old_records_can_be_deleted(api: httpx.Client, topic: str) -> None:
    produce(api, topic, *({"partition": 0, "value": number} for number in range(5)))
    path = f"/topics/{topic}/partitions/0/records"
    assert api.delete(path, params={"before_offset": 3}).json() == {"start_offset": 3}
    assert [record["value"] for record in read(api, topic)] == [3, 4]
    assert api.delete(path, params={"before_offset": 99}).status_code == 416
    assert api.delete(path).json() == {"start_offset": 5}


# --- live -----------------------------------------------------------------------------------------------------------


def events(stream: httpx.Response, count: int) -> list[tuple[str, dict[str, object]]]:
    """Return the ids and data of the next events."""
    found: list[tuple[str, dict[str, object]]] = []
    event_id = ""
    for line in stream.iter_lines():
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            found.append((event_id, json.loads(line.removeprefix("data: "))))
            if len(found) == count:
                break
    return found


def test_a_tail_shows_records_as_they_come(api: httpx.Client, topic: str) -> None:
    produce(api, topic, {"partition": 0, "value": "before"})
    with api.stream("GET", f"/topics/{topic}/records/stream") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        produce(api, topic, {"partition": 1, "value": "now"})
        ((_, record),) = events(stream, 1)
    assert (record["partition"], record["value"]) == (1, "now")


def test_a_tail_goes_on_after_the_last_event(api: httpx.Client, topic: str) -> None:
    produce(api, topic, *({"partition": 0, "value": number} for number in range(3)))
    path = f"/topics/{topic}/records/stream"
    with api.stream("GET", path, params={"position": "earliest"}) as stream:
        (_, first), (event_id, second) = events(stream, 2)
    assert (first["value"], second["value"]) == (0, 1)
    with api.stream("GET", path, headers={"Last-Event-ID": event_id}) as stream:
        ((_, third),) = events(stream, 1)
    assert third["value"] == 2
    assert api.get(path, headers={"Last-Event-ID": "x"}).status_code == 400


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_body_has_limits_in_size_and_in_time() -> None:
    settings = {"rest.body_bytes_max": 2000, "rest.body_timeout_ms": 300}
    with running_broker(settings=settings) as broker:
        url = f"http://127.0.0.1:{broker.port}/api/v1/topics/t/records"
        told = httpx.post(url, content=b"x" * 3000, headers=NDJSON)
        streamed = httpx.post(url, content=iter([b"x" * 1500, b"x" * 1500]), headers=NDJSON)
        bomb = httpx.post(url, content=gzip.compress(b"x" * 3000), headers={**NDJSON, "Content-Encoding": "gzip"})
        for refused in (told, streamed, bomb):
            assert (refused.status_code, refused.json()["code"]) == (413, "REQUEST_TOO_LARGE")
        with socket.create_connection(("127.0.0.1", broker.port)) as slow:
            head = b"POST /api/v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            slow.sendall(head + b"Content-Length: 10\r\n\r\n{")
            assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_head_without_end_is_refused(broker: TestBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        line = b"X-Padding: " + b"x" * 1000 + b"\r\n"
        for _ in range(200):
            client.sendall(line)
        assert client.recv(100).startswith(b"HTTP/1.1 431 ")


def test_a_client_over_its_quota_waits_for_its_answer() -> None:
    with running_broker(settings={"quotas.produce_bytes_per_s": 20_000}) as broker:
        url = f"http://127.0.0.1:{broker.port}/api/v1/topics/t/records"
        body = {"records": [{"value": "x" * 25_000}]}
        assert httpx.post(url, json=body).elapsed.total_seconds() > 0.2


def test_a_large_answer_is_packed_for_who_accepts_it(api: httpx.Client, topic: str) -> None:
    produce(api, topic, {"partition": 0, "value": "x" * 10_000})
    answer = api.get(f"/topics/{topic}/partitions/0/records")
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < 1000
    assert answer.json()["records"][0]["value"] == "x" * 10_000


def test_other_origins_are_let_in_only_when_configured(http: httpx.Client) -> None:
    asked = {"Origin": "https://shop.example", "Access-Control-Request-Method": "GET"}
    assert "access-control-allow-origin" not in http.get("/livez", headers=asked).headers
    with running_broker(settings={"rest.cors_origins": "https://shop.example"}) as broker:
        answer = httpx.options(f"http://127.0.0.1:{broker.port}/api/v1/topics", headers=asked)
        shown = httpx.get(f"http://127.0.0.1:{broker.port}/health", headers=asked)
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    assert {"Next-Offset", "Idempotency-Replayed"} <= set(shown.headers["access-control-expose-headers"].split(", "))
