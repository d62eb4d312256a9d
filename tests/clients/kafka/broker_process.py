"""A broker in a process of its own, for tests that kill it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.ports import free_port


class BrokerProcess:
    """A broker process that can be killed and started again on the same port and data."""

    def __init__(self, data_dir: Path, settings: Mapping[str, object] | None = None) -> None:
        self._data_dir = data_dir
        self._settings = {"listener.http_port": 0, **(settings or {})}
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.restarts = -1
        self.start()

    def start(self) -> None:
        self.restarts += 1
        command = [sys.executable, "-m", "flymq", "server", "start", "--dev", f"--port={self.port}"]
        flags = [f"--data-dir={self._data_dir}", *(f"--set={name}={value}" for name, value in self._settings.items())]
        self._process = subprocess.Popen(
            [*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        assert re.search(r":\d+", self._process.stdout.readline()), "the broker did not start"

    def kill(self) -> None:
        kill(self._process)

    def stop(self) -> None:
        """Shut down cleanly."""
        kill(self._process, signal.SIGTERM)


def kill(process: subprocess.Popen[str], number: signal.Signals = signal.SIGKILL) -> None:
    if process.returncode is not None:
        return
    os.kill(process.pid, number)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
