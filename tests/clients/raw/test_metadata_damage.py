"""A real broker, killed, and one bit of its metadata flipped: every topic is there, or the broker says what to do."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

from flymq import FlyMQClient

TOPICS = {f"topic-{number}" for number in range(12)}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], BrokerProcess]]:
    started: list[BrokerProcess] = []

    def start() -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / "data", log=tmp_path / "log"))
        return started[-1]

    yield start
    for broker in started:
        broker.kill()


def topics(broker: BrokerProcess) -> set[str]:
    with FlyMQClient(broker.address) as client:
        return set(client.list_topics())


def fill(broker: BrokerProcess) -> None:
    with FlyMQClient(broker.address) as client:
        for name in sorted(TOPICS):
            client.create_topic(name, 2)
            client.produce_batch(name, [b"1", b"2"])


@pytest.mark.parametrize("file", ["changes", "metadata.db", "metadata.previous.db"])
def test_after_a_kill_one_flipped_bit_in_the_metadata_costs_no_topic(
    start: Callable[[], BrokerProcess], tmp_path: Path, file: str
) -> None:
    start().end(signal.SIGTERM)
    broker = start()
    fill(broker)
    broker.end(signal.SIGKILL)
    chance = random.Random(file)
    for _ in range(3):
        path = max(path for path in (tmp_path / "data").glob("metadata.*") if file in path.name)
        raw = bytearray(path.read_bytes())
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        path.write_bytes(raw)
        broker = start()
        assert topics(broker) == TOPICS
        broker.end(signal.SIGKILL)


def test_a_broker_without_its_metadata_refuses_to_start_until_it_is_repaired(
    start: Callable[[], BrokerProcess], tmp_path: Path
) -> None:
    broker = start()
    fill(broker)
    broker.kill()
    for path in (tmp_path / "data").glob("metadata.*"):
        path.unlink()
    flymq = [sys.executable, "-m", "flymq"]
    refused = subprocess.run(
        [*flymq, "server", "start", "--port", "0", "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert refused.returncode != 0
    assert "flymq repair catalog" in refused.stderr
    repair = [*flymq, "repair", "catalog", "--data-dir", str(tmp_path / "data")]
    shown = subprocess.run([*repair, "--dry-run"], capture_output=True, text=True, timeout=30, check=True)
    assert "topic-11" in shown.stdout
    assert list((tmp_path / "data").glob("metadata.*")) == []
    subprocess.run(repair, capture_output=True, timeout=30, check=True)
    broker = start()
    assert topics(broker) == TOPICS
    with FlyMQClient(broker.address) as client:
        ends = client.admin.latest_offsets("topic-7")
    assert sum(ends.values()) == 2
    assert broker.end(signal.SIGTERM) == 0
    assert "error" not in broker.log_text.lower()
