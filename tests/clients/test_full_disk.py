"""A real broker on a small file system that fills up, and one without free descriptors: both go on by themselves."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from tests.broker_process import BrokerProcess

from flymq import FlyMQClient

RESERVE = 1 << 20


class Broker(BrokerProcess):
    """A broker in a process of its own, used over one HTTP connection."""

    def __init__(self, data_dir: Path, log: Path, settings: dict[str, object]) -> None:
        super().__init__(data_dir, {"storage.reserve_bytes": RESERVE, **settings}, log=log)
        self.http = httpx.Client(base_url=f"http://{self.address}", timeout=30)

    def end(self, number: int) -> int:
        self.http.close()
        return super().end(number)

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get("/health").json()
        return found

    def produce(self, topic: str, size: int = 10_000) -> bool:
        """Write one record; return whether it was written, or the disk was full."""
        answer = self.http.post(f"/api/v1/topics/{topic}/records", json={"records": [{"value": "x" * size}]})
        assert answer.status_code == 200 or '"DISK_FULL"' in answer.text, answer.text
        return answer.status_code == 200

    def lines(self, text: str) -> int:
        return self.log_text.count(text)


Start = Callable[..., Broker]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Broker] = []

    def start(data_dir: Path, settings: dict[str, object] | None = None) -> Broker:
        started.append(Broker(data_dir, tmp_path / "log", settings or {}))
        return started[-1]

    yield start
    for broker in started:
        broker.http.close()
        broker.kill()


def fill(ballast: Path) -> None:
    """Leave no byte free."""
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


def test_a_full_disk_heals_by_itself_and_nothing_acknowledged_is_lost(small_disk: Path, start: Start) -> None:
    broker, ballast = start(small_disk / "data", {"topics.default_partitions": 1}), small_disk / "ballast"
    assert broker.produce("orders")
    fill(ballast)
    written = 1
    while broker.produce("orders", 100_000):
        written += 1
    health = broker.health()
    assert health["status"] == "degraded" and health["offline_partitions"] == []
    assert "is full" in health["problems"][0]
    assert "flymq_disk_full 1" in broker.http.get("/metrics").text
    for _ in range(20):
        assert not broker.produce("orders")

    sent: list[bool] = []
    with FlyMQClient(broker.address) as client:
        assert len(client.consume("orders", written - 1).value or b"") >= 10_000
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    producer.produce("orders", b"by Kafka", on_delivery=lambda error, message: sent.append(error is None))
    producer.poll(2)
    assert sent == []  # it retries
    ballast.unlink()
    assert producer.flush(60) == 0 and sent == [True]
    assert broker.produce("orders")
    assert broker.health()["problems"] == []
    assert broker.lines("Writes are refused") == broker.lines("has room again") == 1
    assert broker.end(signal.SIGTERM) == 0


def test_topics_can_be_deleted_and_retention_lowered_on_a_full_disk(small_disk: Path, start: Start) -> None:
    broker = start(
        small_disk / "data",
        {
            "topics.default_partitions": 1,
            "storage.retention_check_interval_ms": 300,
            "storage.checkpoint_interval_ms": 300,
        },
    )
    for topic in ("deleted", "shortened"):
        broker.http.post("/api/v1/topics", json={"name": topic, "config": {"segment.bytes": 1_000_000}})
        for _ in range(40):
            assert broker.produce(topic, 100_000)
    fill(small_disk / "ballast")
    assert not [broker.produce("shortened", 200_000) for _ in range(6)][-1]
    assert broker.http.delete("/api/v1/topics/deleted").status_code == 204
    until(lambda: broker.produce("shortened"), "the space of a deleted topic is used")
    fill(small_disk / "ballast")
    assert not [broker.produce("shortened", 200_000) for _ in range(6)][-1]
    changed = broker.http.patch("/api/v1/topics/shortened/config", json={"config": {"retention.bytes": 1_000_000}})
    assert changed.is_success, changed.text
    until(lambda: broker.produce("shortened"), "the space of expired segments is used")
    assert broker.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_broker_starts_on_a_full_disk_and_takes_writes_when_there_is_room(
    small_disk: Path, start: Start, number: int
) -> None:
    data, ballast = small_disk / "data", small_disk / "ballast"
    broker = start(data, {"topics.default_partitions": 1})
    for _ in range(5):
        assert broker.produce("orders")
    broker.end(number)
    (data / "reserve").unlink()
    fill(ballast)
    broker = start(data)
    with FlyMQClient(broker.address) as client:
        assert len(client.consume("orders", 4).value or b"") >= 10_000
    assert not broker.produce("orders")
    assert "is full" in broker.health()["problems"][0]
    ballast.unlink()
    until(lambda: broker.produce("orders"), "there is room")
    assert broker.health()["problems"] == []
    assert broker.end(signal.SIGTERM) == 0


def test_a_broker_without_free_descriptors_serves_on_and_accepts_again(tmp_path: Path, start: Start) -> None:
    broker = start(tmp_path / "data")
    if not hasattr(resource, "prlimit"):
        pytest.skip("the limits of another process can only be set on Linux")
    assert broker.produce("orders")
    pid = broker.process.pid
    in_use = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use + 20, before[1]))
    waiting = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(40)]
    until(lambda: bool(broker.health()["problems"]), "the state shows")
    assert "descriptor" in broker.health()["problems"][0]
    assert broker.produce("orders")  # over the connection that is open
    assert broker.lines("cannot accept connections") == 1
    for each in waiting:
        each.close()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    until(lambda: not broker.health()["problems"], "descriptors are free again")
    with FlyMQClient(broker.address) as client:
        client.list_topics()
    assert broker.lines("connections are accepted again") == 1
    assert broker.end(signal.SIGTERM) == 0
