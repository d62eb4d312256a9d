"""The commands of the page on growing work as they stand there: nothing is lost from one broker to three to two."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.etcd_process import shared_etcd
from tests.ports import free_ports

from flymq import FlyMQClient

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "from-one-to-many.md"
ETCD = "http://etcd-1:2379,http://etcd-2:2379,http://etcd-3:2379"
LAST = "## Several brokers on one machine"
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATIENCE_S = 120

Step = tuple[str, list[str]]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have one loopback address, and a cluster needs three"
)


def steps(text: str) -> list[Step]:
    """Return the commands of a part of the page, with the lines that they print."""
    found: list[Step] = []
    for line in "".join(_CONSOLE.findall(text)).splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


class Machine:
    """Runs the commands of the page, on other ports and in another folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_ports(3)
        self.servers: dict[str, subprocess.Popen[str]] = {}
        """By data directory."""

    def _words(self, command: str) -> list[str]:
        if ETCD in command:
            command = command.replace(ETCD, f"{shared_etcd().client_url} --set cluster.name=growing-{self._port}")
        command = command.replace("10.0.0.", "127.0.0.").replace("/var/lib/flymq", str(self._folder))
        return [sys.executable, "-m", *shlex.split(command.replace("9092", str(self._port)))]

    def start(self, command: str, brokers: int = 1) -> None:
        words = [*self._words(command), "--port", str(self._port), "--set", "listener.http_port=-1"]
        with (self._folder / "log").open("ab") as log:
            server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        self.servers[words[words.index("--data-dir") + 1].removeprefix(str(self._folder) + "/")] = server
        assert server.stdout is not None
        for _ in range(brokers):
            assert " listens on " in server.stdout.readline(), (self._folder / "log").read_text()[-3000:]

    def stop(self) -> None:
        """Stop all servers in good order."""
        for server in self.servers.values():
            server.terminate()
        for server in self.servers.values():
            server.communicate(timeout=_PATIENCE_S)
        assert {server.returncode for server in self.servers.values()} <= {0, -signal.SIGKILL}
        self.servers.clear()

    def until_grown(self, *topics: str) -> None:
        """Wait until every partition of these topics has three in-sync replicas."""
        deadline_s = time.monotonic() + _PATIENCE_S
        with FlyMQClient(f"127.0.0.1:{self._port}") as client:
            for topic in topics:
                while any(len(part.isr) < 3 for part in client.admin.describe_topic(topic).partitions):
                    assert time.monotonic() < deadline_s, client.admin.describe_topic(topic)
                    time.sleep(0.1)

    def run(self, command: str, lines: list[str]) -> None:
        environment = {**os.environ, "FLYMQ_BOOTSTRAP": f"127.0.0.1:{self._port}"}
        done = subprocess.run(
            self._words(command), capture_output=True, text=True, env=environment, timeout=_PATIENCE_S
        )
        assert done.returncode == 0, (command, done.stderr)
        printed = [line.split() for line in done.stdout.splitlines()]
        assert [line for line in lines if line.split() not in printed] == [], (command, done.stdout)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.stop()


@pytest.mark.timeout(400)
def test_a_single_broker_becomes_a_cluster_which_survives_it(machine: Machine) -> None:
    shared_etcd()  # or skip
    for command, lines in steps(PAGE.read_text().partition(LAST)[0]):
        if "cluster adopt" in command:
            machine.stop()
        if "server start" in command:
            machine.start(command)
            continue
        if "'milk'" in command:
            machine.until_grown("__offsets", "__transactions")
            machine.servers["1"].kill()
        machine.run(command, lines)


@pytest.mark.timeout(400)
def test_a_single_broker_becomes_one_of_several_on_its_machine(machine: Machine, tmp_path: Path) -> None:
    machine.start("flymq server start --data-dir /var/lib/flymq/alone")
    machine.run("flymq topic create orders --partitions 2", [])
    machine.run("flymq produce orders tea --acks all", [])
    machine.stop()
    (adopt, _), (start, _) = steps(PAGE.read_text().partition(LAST)[2])
    machine.run(f"{adopt} --dry-run", ["orders 2"])
    assert not (tmp_path / "many").exists()
    machine.run(adopt, ["orders 2"])
    machine.run(adopt, [])  # once more does no harm
    assert not (tmp_path / "alone").exists()
    machine.start(start, brokers=3)
    machine.run("flymq topic alter orders --replication-factor 3", [])
    machine.run("flymq consume orders", ["tea"])
