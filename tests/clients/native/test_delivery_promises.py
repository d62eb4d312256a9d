"""The three delivery promises, as the page shows them, while kill -9 hits the program and the broker at random."""

import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.ports import free_port

from flymq import FlyMQClient

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "delivery-promises.md"
pytestmark = pytest.mark.slow

RECORDS = 200
KILLS = 6
DEADLINE_S = 90

# Small polls make many commits, so that a kill meets each step of them.
PROGRAM = """
import sys
from flymq import FlyMQClient
from flymq.errors import FlyMQError
{copies}
with FlyMQClient(sys.argv[1], acks="all") as client:
    consumer = client.consumer(
        "orders", group="biller", instance_id="biller", auto_commit=False, poll_records_max=5, session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
    )
    with consumer:
        while True:
            try:
                copy_{promise}(client, consumer)
            except FlyMQError:
                {after_error}
"""


def copies() -> str:
    blocks = re.findall(r"^```python\n(def copy_.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    return "\n".join(blocks)


class Killable:
    """A broker on a port that stays, and the program; each is started again after it was killed."""

    def __init__(self, tmp_path: Path, promise: str) -> None:
        self.port = free_port()
        after_error = "consumer.seek_to_committed()" if promise == "exactly_once" else "sys.exit(1)"
        source = PROGRAM.format(copies=copies(), promise=promise, after_error=after_error)
        settings = ["--set", "listener.http_port=-1", "--dev", "--port", str(self.port), "--data-dir", str(tmp_path)]
        self._commands = {
            "broker": [sys.executable, "-m", "flymq", "server", "start", *settings],
            "program": [sys.executable, "-c", source, f"127.0.0.1:{self.port}"],
        }
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        process = subprocess.Popen(self._commands[name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._running[name] = process
        if name == "broker":
            assert process.stdout is not None
            assert "listens" in process.stdout.readline()

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def keep_running(self) -> None:
        """Start the program again if it gave up while the broker was away."""
        if self._running["program"].poll() is not None:
            self.kill("program")
            self.start("program")

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)


@contextmanager
def everything_running(tmp_path: Path, promise: str) -> Iterator[tuple[Killable, FlyMQClient]]:
    both = Killable(tmp_path, promise)
    try:
        both.start("broker")
        with FlyMQClient(f"127.0.0.1:{both.port}", acks="all") as client:
            for topic in ("orders", "billed"):
                client.create_topic(topic, partitions=1, settings={"persistence": "fsync"})
            client.produce_batch("orders", [b"%d" % number for number in range(RECORDS)])
            both.start("program")
            yield both, client
    finally:
        both.close()


def committed(client: FlyMQClient) -> int:
    groups = {group.name for group in client.admin.list_groups()}
    if "biller" not in groups:
        return 0
    return max((position.offset for position in client.admin.describe_group("biller").positions), default=0)


def read_all(client: FlyMQClient, topic: str) -> list[int]:
    numbers: list[int] = []
    offset = 0
    while records := client.fetch(topic, 0, offset=offset):
        numbers += [int(record.value) for record in records]
        offset = records[-1].offset + 1
    return numbers


def run(tmp_path: Path, promise: str, seed: int) -> list[int]:
    """Copy everything, with kills on the way; return what was written."""
    chance = random.Random(seed)
    with everything_running(tmp_path, promise) as (both, client):
        deadline = time.monotonic() + DEADLINE_S
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.2, 1.0))  # the kill itself has no condition to wait for
            victim = chance.choice(["program", "program", "broker"])
            both.kill(victim)
            both.start(victim)
            both.keep_running()
        while committed(client) < RECORDS:
            assert time.monotonic() < deadline, f"seed {seed}: the program does not come to an end"
            time.sleep(0.05)
            both.keep_running()
        return read_all(client, "billed")


@pytest.mark.parametrize("seed", [1])
def test_at_most_once_does_nothing_twice(tmp_path, seed):
    billed = Counter(run(tmp_path, "at_most_once", seed))
    assert max(billed.values()) == 1, seed
    assert set(billed) <= set(range(RECORDS))


@pytest.mark.parametrize("seed", [2])
def test_at_least_once_loses_nothing(tmp_path, seed):
    assert set(run(tmp_path, "at_least_once", seed)) == set(range(RECORDS)), seed


@pytest.mark.parametrize("seed", [3, 4])
def test_exactly_once_neither_loses_nor_repeats_and_keeps_the_order(tmp_path, seed):
    assert run(tmp_path, "exactly_once", seed) == list(range(RECORDS)), seed
