"""A broker in a process of its own, for tests that kill it."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.ports import free_port

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60


class BrokerDidNotStart(AssertionError):
    """The broker ended, or said nothing for a long time, before it listened."""


class BrokerProcess:
    """A broker process that can be killed and started again on the same port and data.

    With a `log`, what it writes to stderr through all its lives is appended to that file.
    """

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        *,
        log: Path | None = None,
        config_file: Path | None = None,
        host: str = "127.0.0.1",
        within: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`host` is the address that it listens on; `within` is a command that runs the one after it elsewhere."""
        self.data_dir = data_dir
        self._within = within
        self._environ = {**os.environ, **(environ or {})}
        self._settings = {"listener.http_port": 0, **(settings or {})}
        self._log = log
        self._config = [] if config_file is None else [f"--config={config_file}"]
        self.port = free_port()
        self.host = host
        self.address = f"{host}:{self.port}"
        self.restarts = -1
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        self.begin_start()
        self.until_started()

    def begin_start(self) -> None:
        """Start it without waiting for it: of many brokers, one may wait for others."""
        self.restarts += 1
        command = [*self._within, sys.executable, "-m", "flymq", "server", "start", "--dev", *self._config]
        where = [f"--host={self.host}", f"--port={self.port}", f"--data-dir={self.data_dir}"]
        flags = [*where, *(f"--set={name}={value}" for name, value in self._settings.items())]
        with contextlib.ExitStack() as stack:
            stderr: int | IO[bytes] = subprocess.DEVNULL
            if self._log is not None:
                stderr = stack.enter_context(self._log.open("ab"))
            self.process = subprocess.Popen(
                [*command, *flags], stdout=subprocess.PIPE, stderr=stderr, text=True, env=self._environ
            )

    def until_started(self) -> None:
        line = _first_line(self.process)
        if not re.search(r":\d+", line):
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may still be saying why
                self.process.wait(10)
            kill(self.process)
            how = f"exit code {self.process.returncode}, stdout {line!r}"
            raise BrokerDidNotStart(f"the broker did not start ({how}); it said:\n{self.log_text[-2_000:]}")

    def kill(self) -> None:
        kill(self.process)

    def end(self, number: int) -> int:
        """Send a signal that ends it; return its exit code."""
        self.process.send_signal(number)
        self.process.communicate(timeout=STOP_TIMEOUT_S)
        return self.process.returncode

    def pause(self) -> None:
        """Let it do nothing until `resume`; return when what it has asked of the kernel is done."""
        self.process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self.process.pid}/task")
        while any(_state(thread) not in "TXZ" for thread in threads.iterdir()):
            time.sleep(0.001)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Stop it in good order; return its exit code, or that of SIGKILL when it does not stop by itself."""
        self.process.terminate()
        try:
            self.process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        return self.process.returncode

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def log_text(self) -> str:
        return "" if self._log is None or not self._log.exists() else self._log.read_text(errors="replace")

    @property
    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _state(thread: Path) -> str:
    """Return the state of a thread, a letter: T if it is stopped."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:  # it has ended
        return "X"


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline() if selector.select(START_TIMEOUT_S) else ""


def kill(process: subprocess.Popen[str]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
