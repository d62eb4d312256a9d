"""The commands of the page on clusters work as they stand there, on other ports and with the etcd of the tests."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.etcd_process import shared_etcd
from tests.ports import free_ports

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md"
ETCD = "http://etcd-1:2379,http://etcd-2:2379,http://etcd-3:2379"
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATIENCE_S = 60

Step = tuple[str, list[str]]


def sections() -> dict[str, list[Step]]:
    """Return the commands of each section of the page, with the lines that they print."""
    found: dict[str, list[Step]] = {}
    for text in PAGE.read_text().split("\n## ")[1:]:
        steps: list[Step] = []
        for line in "".join(_CONSOLE.findall(text)).splitlines():
            if line.startswith("$ "):
                steps.append((line.removeprefix("$ "), []))
            else:
                steps[-1][1].append(line)
        if steps:
            found[text.partition("\n")[0]] = steps
    return found


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.terminate()
    codes = []
    for process in processes:
        process.communicate(timeout=_PATIENCE_S)
        codes.append(process.returncode)
    assert not any(codes), codes


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have one loopback address, and a cluster needs three"
)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("title", sections())
def test_the_commands_of_a_section_work_in_their_order(
    title: str, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    port = free_ports(3)

    def here(command: str) -> str:
        for number in range(3):
            command = command.replace(str(9092 + number), str(port + number))
        if ETCD in command:
            command = command.replace(ETCD, f"{shared_etcd().client_url} --set cluster.name=docs-{port}")
        command = command.replace("10.0.0.", "127.0.0.").replace("/var/lib/flymq", str(tmp_path))
        return f"{command} --port {port}" if " start " in command and "--port" not in command else command

    environment = {**os.environ, "FLYMQ_BOOTSTRAP": f"127.0.0.1:{port}"}
    for command, lines in sections()[title]:
        words = [sys.executable, "-m", *shlex.split(here(command))]
        if "cluster dev" in command:
            words += ["--port", str(port)]
        if "cluster dev" in command or "server start" in command:
            words += ["--set", "listener.http_port=-1"]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
            started.append(process)
            assert process.stdout is not None
            told = sorted(process.stdout.readline() for line in lines if " listens on " in line)
            expected = [here(line).split(",")[0] for line in lines if " listens on " in line]
            assert [line.split(",")[0] for line in told] == expected
        else:
            done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=_PATIENCE_S)
            assert done.returncode == 0, (command, done.stderr)
            assert [line for line in lines if line not in done.stdout] == []
