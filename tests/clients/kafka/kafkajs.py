"""KafkaJS, the client for Node.js: found where NODE_PATH says, or installed once into a cache by npm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

from tests.clients.kafka.peers import Row

VERSION = "2.2.4"
SCRIPT = Path(__file__).with_name("kafkajs.js")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "flymq-tests" / f"kafkajs-{VERSION}"
MISSING = "KafkaJS is not installed: it needs node, and npm that reaches its registry or NODE_PATH"


def find_modules() -> str | None:
    """Return the directory in which Node.js finds KafkaJS; None where it cannot be had."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None:
        return None
    for place in (os.environ.get("NODE_PATH", ""), str(CACHE / "node_modules")):
        if place and Path(place, "kafkajs").is_dir():
            return place
    if npm is None:
        return None
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as scratch:
        command = [npm, "install", "--silent", "--fetch-retries=0", "--prefix", scratch, f"kafkajs@{VERSION}"]
        if subprocess.run(command, capture_output=True, timeout=60, check=False).returncode != 0:
            return None
        if not CACHE.exists():  # another worker may have been faster
            shutil.copytree(scratch, CACHE, dirs_exist_ok=True)
    return str(CACHE / "node_modules")


def start(modules: str, command: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a command that runs until it is killed."""
    return subprocess.Popen(
        _words(command, arguments),
        env=_environment(modules),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def ask(modules: str, command: str, *arguments: object, given: str = "") -> str:
    """Run a command to its end; return the last line it printed."""
    done = subprocess.run(
        _words(command, arguments),
        env=_environment(modules),
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1] if done.stdout else ""


def _words(command: str, arguments: Sequence[object]) -> list[str]:
    node = shutil.which("node")
    assert node is not None
    return [node, str(SCRIPT), command, *map(str, arguments)]


def _environment(modules: str) -> dict[str, str]:
    return {**os.environ, "NODE_PATH": modules, "KAFKAJS_NO_PARTITIONER_WARNING": "1"}


class KafkaJs:
    """As the other peers, though it reads in a group: it cannot do otherwise."""

    def __init__(self, modules: str) -> None:
        self._modules = modules

    def write(
        self, address: str, topic: str, rows: Sequence[Row], compression: str = "none", *, transaction: str = ""
    ) -> None:
        """`transaction`: "commit" or "abort" to write in one and end it so."""
        given = json.dumps([[_text(row.key), _text(row.value), _headers(row), row.timestamp_ms] for row in rows])
        identity = f"writer-of-{topic}" if transaction else ""
        ask(self._modules, "write", address, topic, compression, identity, transaction, given=given)

    def read(
        self, address: str, topic: str, count: int, *, committed: bool = False, group: str = "kafkajs"
    ) -> list[Row]:
        told = ask(self._modules, "read", address, topic, count, group, "false" if committed else "true")
        return [
            Row(_bytes(key), _bytes(value), tuple((name, _bytes(each)) for name, each in headers), timestamp)
            for key, value, headers, timestamp in json.loads(told)
        ]


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _headers(row: Row) -> list[tuple[str, str | None]]:
    return [(name, _text(value)) for name, value in row.headers]
