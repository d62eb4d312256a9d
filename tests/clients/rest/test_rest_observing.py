"""What probes and Prometheus are told."""

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from flymq import FlyMQClient, __version__
from flymq.host.host import system_host
from flymq.model.errors import AddressInUse, MessageTooLarge, OffsetOutOfRange
from flymq.server.assemble import assemble
from flymq.server.settings import load_config
from flymq.testing import TestBroker, running_broker

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "monitoring.md"
PROBES = ("/livez", "/startupz", "/readyz", "/health")


def families(http: httpx.Client, path: str) -> dict[str, Metric]:
    answer = http.get(path)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def value(http: httpx.Client, path: str, name: str, **labels: str) -> float:
    for family in families(http, path).values():
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    raise AssertionError(f"{path} has no {name} with {labels}")


@pytest.mark.parametrize("probe", ["/livez", "/readyz", "/startupz"])
def test_a_broker_that_serves_is_live_ready_and_started(http: httpx.Client, probe: str) -> None:
    assert http.get(probe).json() == {"status": "ok"}
    assert http.head(probe).status_code == 200


def test_health_tells_how_the_broker_is(http: httpx.Client, topic: str) -> None:
    health = http.get("/health").json()
    assert (health["status"], health["version"], health["problems"]) == ("ok", __version__, [])
    assert health["topics"] >= 1
    assert health["connections"] >= 1


def test_what_was_written_and_read_is_counted_by_protocol_and_topic(
    http: httpx.Client, api: httpx.Client, broker: TestBroker, topic: str
) -> None:
    api.post(f"/topics/{topic}/records", json={"records": [{"value": 1, "partition": 0}] * 3})
    api.get(f"/topics/{topic}/partitions/0/records")
    with FlyMQClient(broker.address) as client:
        client.produce_batch(topic, [b"1", b"2"], partition=1)
        assert len(client.fetch(topic, 1, 0)) == 2
        assert client.consume(topic, 1, partition=1).value == b"2"
    page = "/metrics/detailed"
    assert value(http, page, "flymq_topic_messages_in_total", topic=topic, protocol="http") == 3
    assert value(http, page, "flymq_topic_messages_in_total", topic=topic, protocol="native") == 2
    assert value(http, page, "flymq_topic_messages_out_total", topic=topic, protocol="http") == 3
    assert value(http, page, "flymq_topic_messages_out_total", topic=topic, protocol="native") == 3
    for protocol in ("http", "native"):
        assert value(http, page, "flymq_topic_bytes_in_total", topic=topic, protocol=protocol) > 0
        assert value(http, page, "flymq_topic_bytes_out_total", topic=topic, protocol=protocol) > 0


def test_every_way_to_read_counts_the_records_it_gave(
    http: httpx.Client, api: httpx.Client, broker: TestBroker, topic: str, group: str
) -> None:
    api.post(f"/topics/{topic}/records", json={"records": [{"value": n, "partition": 0} for n in range(10)]})

    def counted(protocol: str) -> float:
        return value(http, "/metrics/detailed", "flymq_topic_messages_out_total", topic=topic, protocol=protocol)

    api.get(f"/topics/{topic}/partitions/0/records?offset=6")
    assert counted("http") == 4  # though the batch it lies in has ten
    made = api.post(f"/groups/{group}/consumers", json={"topics": [topic], "position": "earliest"}).json()
    api.get(f"/groups/{group}/consumers/{made['id']}/records?limit=3")
    assert counted("http") == 4 + 3
    with FlyMQClient(broker.address) as client, client.consumer(topic) as reader:
        assert len(reader.poll(10_000)) == 10
    assert counted("native") == 10
    kafka = Consumer(
        {"bootstrap.servers": broker.address, "group.id": f"{group}-kafka", "auto.offset.reset": "earliest"}
    )
    kafka.subscribe([topic])
    taken = kafka.consume(10, timeout=20)
    kafka.close()
    assert len(taken) == 10
    assert counted("kafka") >= 10  # it reads ahead, and may have asked twice


def counters(http: httpx.Client) -> Iterator[tuple[tuple[str, str], float]]:
    for family in families(http, "/metrics").values():
        if family.type in ("counter", "histogram"):
            for sample in family.samples:
                yield (sample.name, str(sorted(sample.labels.items()))), sample.value


def test_counters_never_fall_when_clients_and_topics_go(
    http: httpx.Client, api: httpx.Client, broker: TestBroker, topic: str
) -> None:
    with FlyMQClient(broker.address) as client:
        client.produce_batch(topic, [b"1", b"2"], partition=1)
    before = dict(counters(http))
    api.delete(f"/topics/{topic}")
    after = dict(counters(http))
    assert {name for name, count in before.items() if after.get(name, -1) < count} == set()


def test_groups_are_measured_in_records_and_seconds(
    http: httpx.Client, api: httpx.Client, topic: str, group: str
) -> None:
    records = [{"value": number, "partition": 0, "timestamp": 1000} for number in range(5)]
    api.post(f"/topics/{topic}/records", json={"records": records})
    offsets = [{"topic": topic, "partition": 0, "offset": 2}]
    api.post(f"/groups/{group}/reset", json={"offsets": offsets})
    labels = {"consumergroup": group, "topic": topic, "partition": "0"}
    page = "/metrics/detailed"
    assert value(http, page, "kafka_consumergroup_current_offset", **labels) == 2
    assert value(http, page, "kafka_consumergroup_lag", **labels) == 3
    assert value(http, page, "kafka_consumergroup_lag_sum", consumergroup=group, topic=topic) == 3
    assert value(http, page, "flymq_group_lag_seconds", **labels) > 1_000_000
    assert value(http, page, "kafka_consumergroup_members", consumergroup=group) == 0
    assert value(http, "/metrics", "flymq_group_lag_messages_sum") >= 3


def test_requests_are_timed_and_failures_counted(http: httpx.Client, api: httpx.Client) -> None:
    api.get("/topics/absent")
    assert value(http, "/metrics", "flymq_request_failures_total", protocol="http", code="TOPIC_NOT_FOUND") >= 1
    labels = {"protocol": "http", "operation": "describe_topic"}
    assert value(http, "/metrics", "flymq_request_duration_seconds_count", **labels) >= 1


def test_what_fails_in_part_of_a_request_is_counted_too(
    http: httpx.Client, api: httpx.Client, broker: TestBroker, topic: str
) -> None:
    api.patch(f"/topics/{topic}/config", json={"config": {"max.message.bytes": 1000}})
    assert api.post(f"/topics/{topic}/records", json={"records": [{"value": "x" * 2000}]}).status_code == 207
    with FlyMQClient(broker.address) as client, pytest.raises(MessageTooLarge):
        client.produce(topic, b"x" * 2000)
    kafka = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    kafka.produce(topic, b"x" * 2000)
    assert kafka.flush(20) == 0
    for protocol in ("http", "native", "kafka"):
        labels = {"protocol": protocol, "code": "MESSAGE_TOO_LARGE"}
        assert value(http, "/metrics", "flymq_request_failures_total", **labels) >= 1
    api.get(f"/topics/{topic}/partitions/0/records?offset=99")
    with FlyMQClient(broker.address) as client, pytest.raises(OffsetOutOfRange):
        client.fetch(topic, 0, 99)
    for protocol in ("http", "native"):
        labels = {"protocol": protocol, "code": "OFFSET_OUT_OF_RANGE"}
        assert value(http, "/metrics", "flymq_request_failures_total", **labels) >= 1


def test_every_metric_is_documented_and_every_documented_one_exists(
    http: httpx.Client, api: httpx.Client, topic: str, group: str
) -> None:
    api.post(f"/groups/{group}/reset", json={"topics": [topic], "position": "earliest"})
    exposed = set()
    for page in ("/metrics", "/metrics/detailed"):
        exposed |= set(re.findall(r"^# TYPE (\S+)", http.get(page).text, re.MULTILINE))
    documented = set(re.findall(r"^\| `((?:flymq|kafka|process)_\w+)`", DOCS.read_text(), re.MULTILINE))
    assert documented == exposed


def test_an_idle_broker_is_limited_by_nothing(api: httpx.Client) -> None:
    found = api.get("/diagnosis").json()
    assert [limit for limit in found["limits"] if limit["what"] in ("disk", "buffers", "hot_partition")] == []


def test_the_page_for_people_uses_nothing_from_outside(http: httpx.Client) -> None:
    page = http.get("/docs").text
    assert "http://" not in page
    assert "https://" not in page
    assert 'fetch("openapi.json")' in page
    assert http.get("/openapi.json").json()["openapi"] == "3.1.0"


def test_who_waits_when_the_broker_stops_is_told_so() -> None:
    with ExitStack() as later:
        with running_broker() as broker:
            httpx.post(f"http://127.0.0.1:{broker.port}/api/v1/topics", json={"name": "t", "partitions": 1})
            client = later.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=20))
            paths = ("/livez", "/api/v1/topics/t/partitions/0/records?wait_ms=30000")
            client.sendall("".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n" for path in paths).encode())
            assert client.recv(1 << 16).endswith(b'{"status":"ok"}')  # so it has read the other request too
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"records":[]' in answer


def test_a_port_that_is_taken_keeps_a_broker_from_starting_only_if_it_was_asked_for(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(AddressInUse, match=str(broker.http_port)) as refused,
        running_broker(settings={"listener.http_port": broker.http_port}),
    ):
        pass
    assert "listener.http_port" in refused.value.hint
    monkeypatch.setattr("flymq.server.assemble.HTTP_PORT", broker.http_port)  # as if it were the usual one
    with running_broker(settings={"listener.http_port": ""}) as second:
        assert second.http_port == -1
        assert httpx.get(f"http://127.0.0.1:{second.port}/livez").status_code == 200


async def test_probes_tell_the_truth_while_the_broker_reads_its_disk(tmp_path: Path) -> None:
    flags = {"broker.data_dir": str(tmp_path), "listener.port": 0, "listener.http_port": 0}
    server = assemble(system_host(), load_config(flags={**flags, "storage.recovery_threads_max": 1}))
    disk_answers = threading.Event()
    stuck = asyncio.ensure_future(server._disk_threads.run(disk_answers.wait))
    started = asyncio.ensure_future(server.start())
    while server.http_port < 0:  # noqa: ASYNC110  # nobody tells when it is open
        await asyncio.sleep(0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}", timeout=20) as http:
        assert {path: (await http.get(path)).status_code for path in PROBES} == dict(
            zip(PROBES, (200, 503, 503, 503), strict=True)
        )
        assert (await http.get("/health")).json()["status"] == "starting"
        for path in ("/api/v1/topics", "/metrics"):
            refused = await http.get(path)
            assert (refused.status_code, refused.json()["code"]) == (503, "BROKER_STARTING")
            assert refused.headers["Retry-After"] == "1"
        assert not started.done()
        disk_answers.set()
        await asyncio.gather(stuck, started)
        assert {path: (await http.get(path)).status_code for path in PROBES} == dict.fromkeys(PROBES, 200)
    await server.stop()
