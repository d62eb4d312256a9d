"""Several brokers under a supervisor, as programs: what dies is started again, and nobody is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.clients.cli.conftest import StartFlymq
from tests.ports import free_ports

from flymq.client.sync.client import FlyMQClient
from flymq.host.disk import SystemDisk
from flymq.model.errors import DirectoryLocked, ForeignDataDirectory
from flymq.storage.identity import CLEAN_NAME
from flymq.testing import TestBroker, running_broker

READY = re.compile(r"broker (\d+) listens on (127\.0\.0\.1:\d+), data in (.+)\n")
PATIENCE_S = 60
ONE_REPLICA = "topics.default_replication_factor=1"

Addresses = dict[int, str]


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


def ready(process: subprocess.Popen[bytes], count: int) -> Addresses:
    """Return the addresses of the brokers, when all of them are ready."""
    found = {}
    for _ in range(count):
        text = line(process)
        match = READY.fullmatch(text)
        assert match is not None, f"{text!r}, and then: {process.communicate(timeout=PATIENCE_S)}"
        found[int(match[1])] = match[2]
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it does not happen"
        time.sleep(0.01)


def pid_of(data_dir: Path) -> int:
    return int((data_dir / "lock").read_text() or 0)  # it is being written


def is_free(data_dir: Path) -> bool:
    """Whether no process uses the data directory."""
    if not data_dir.exists():
        return True
    try:
        SystemDisk().lock(data_dir / "lock").release()
    except DirectoryLocked:
        return False
    return True


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port))):
        return True
    return False


def produce(address: str, topic: str, value: str) -> None:
    with FlyMQClient(address, acks="all") as client:
        client.create_topic(topic, partitions=1, exist_ok=True)
        client.produce(topic, value)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_playground_tells_its_addresses_and_leaves_nothing_behind(
    start_flymq: StartFlymq, number: signal.Signals
) -> None:
    cluster = start_flymq("cluster", "dev", "--brokers", "2", "--port", "0")
    addresses = ready(cluster, 2)
    assert sorted(addresses) == [0, 1]
    port = addresses[0].rpartition(":")[2]
    assert f"--server localhost:{port} produce greetings 'hello, world'" in line(cluster)
    assert f"--server localhost:{port} consume greetings --follow" in line(cluster)
    cluster.send_signal(number)
    out, err = cluster.communicate(timeout=PATIENCE_S)
    assert (cluster.returncode, out) == (0, b"")
    assert b"Traceback" not in err


def test_brokers_have_neighbouring_ports_and_directories_and_end_cleanly(
    start_flymq: StartFlymq, tmp_path: Path
) -> None:
    port = free_ports(2)
    cluster = start_flymq(
        *("server", "start", "--brokers", "2", "--port", str(port), "--data-dir", str(tmp_path / "data")),
        *("--set", "log.format=json", "--set", "listener.http_port=-1"),
    )
    assert ready(cluster, 2) == {0: f"127.0.0.1:{port}", 1: f"127.0.0.1:{port + 1}"}
    cluster.terminate()
    _, err = cluster.communicate(timeout=PATIENCE_S)
    assert cluster.returncode == 0
    assert {json.loads(each).get("broker") for each in err.splitlines()} == {None, 0, 1}
    for broker in (0, 1):
        assert (tmp_path / "data" / f"broker-{broker}" / CLEAN_NAME).exists()


def test_a_killed_broker_is_started_again_under_its_address(start_flymq: StartFlymq, tmp_path: Path) -> None:
    port = str(free_ports(3))
    cluster = start_flymq("cluster", "dev", "--port", port, "--data-dir", str(tmp_path))
    addresses = ready(cluster, 3)
    for broker, address in addresses.items():
        produce(address, f"of-{broker}", "kept")
    data_dir = tmp_path / "broker-1"
    killed = pid_of(data_dir)
    os.kill(killed, signal.SIGKILL)
    until(lambda: pid_of(data_dir) != killed and listens(addresses[1]))
    with FlyMQClient(addresses[1]) as client:
        (record,) = client.fetch("of-1", partition=0, offset=0)
        assert record.value == b"kept"
    cluster.send_signal(signal.SIGINT)
    _, err = cluster.communicate(timeout=PATIENCE_S)
    assert cluster.returncode == 0
    assert b"broker 1 has ended (SIGKILL); it is started again in 0.5 s" in err


def test_no_broker_outlives_a_killed_supervisor_and_the_next_one_has_the_data(
    start_flymq: StartFlymq, tmp_path: Path
) -> None:
    start = ("server", "start", "--brokers", "2", "--data-dir", str(tmp_path), "--set", "listener.http_port=-1")
    port = str(free_ports(2))
    first = start_flymq(*start, "--port", port)
    produce(ready(first, 2)[0], "orders", "tea")
    first.kill()
    second = start_flymq(*start, "--port", port)  # at once, while the brokers of the first still end
    with FlyMQClient(ready(second, 2)[0]) as client:
        (record,) = client.fetch("orders", partition=0, offset=0)
        assert record.value == b"tea"
    second.kill()
    until(lambda: is_free(tmp_path / "broker-0") and is_free(tmp_path / "broker-1"))


def test_brokers_that_cannot_start_say_why_and_end_all(
    start_flymq: StartFlymq, broker: TestBroker, tmp_path: Path
) -> None:
    cluster = start_flymq(
        *("server", "start", "--brokers", "2", "--port", str(broker.port - 1), "--data-dir", str(tmp_path)),
        *("--set", "listener.http_port=-1"),
    )
    _, err = cluster.communicate(timeout=PATIENCE_S)
    assert cluster.returncode == 1
    assert f"flymq: port {broker.port} on 127.0.0.1 is in use" in err.decode()
    assert "flymq: broker 1 did not start (exit code 1)" in err.decode()
    assert is_free(tmp_path / "broker-0") and is_free(tmp_path / "broker-1")


def test_the_data_of_one_broker_is_not_taken_for_that_of_several_nor_the_other_way_round(
    start_flymq: StartFlymq, tmp_path: Path
) -> None:
    with running_broker(tmp_path / "one"):
        pass
    several = start_flymq("server", "start", "--brokers", "2", "--data-dir", str(tmp_path / "one"))
    _, err = several.communicate(timeout=PATIENCE_S)
    assert several.returncode == 1
    assert b"one is the data directory of a single broker" in err
    (tmp_path / "several" / "metadata").mkdir(parents=True)
    with (
        pytest.raises(ForeignDataDirectory, match="belongs to several brokers under a supervisor"),
        running_broker(tmp_path / "several"),
    ):
        pass


def test_a_broker_of_a_cluster_needs_an_id(start_flymq: StartFlymq) -> None:
    nameless = start_flymq("server", "start", "--etcd", "http://localhost:2379")
    _, err = nameless.communicate(timeout=PATIENCE_S)
    assert nameless.returncode == 2
    assert err.decode().splitlines() == [
        "flymq: cluster.etcd is set, but broker.id is not",
        "Try: Give each broker of the cluster an id of its own, with --id or broker.id.",
    ]
