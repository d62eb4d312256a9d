"""`flymq` against a real broker: in this process where only the output matters, as a program where more does."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from flymq.cli.app import app
from flymq.cli.exit_codes import run
from flymq.testing import TestBroker, running_broker

COMMAND = [sys.executable, "-m", "flymq"]


class Ended(NamedTuple):
    """What came of a command."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


Flymq = Callable[..., Ended]
StartFlymq = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    """One broker for the tests of a file; each test uses topics of its own."""
    with running_broker() as running:
        yield running


@pytest.fixture
def flymq(broker: TestBroker, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Flymq:
    """Run a command in this process."""

    def command(*arguments: str, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run(app, ["--server", broker.address, *arguments])
        out, err = capsysbinary.readouterr()
        return Ended(code, out, err.decode())

    return command


@pytest.fixture
def start_flymq() -> Iterator[StartFlymq]:
    """Start a command as a program; what still runs at the end of the test is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        process = subprocess.Popen([*COMMAND, *arguments], stdin=pipe, stdout=pipe, stderr=pipe)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
