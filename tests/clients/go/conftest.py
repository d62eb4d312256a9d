"""As for the JVM: on FlyMQ, and with FLYMQ_TEST_KAFKA=1 on Apache Kafka too."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.servers import SERVERS, Server, running_server

SOURCES = Path(__file__).parent / "clients"
MISSING = "Go's Kafka clients cannot be had: they need Go 1.26 or newer that reaches its module proxy"


@pytest.fixture(scope="module", params=SERVERS)
def server(request, tmp_path_factory) -> Iterator[Server]:
    with running_server(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """The compiled program; Go keeps what it has downloaded and compiled in caches of its own."""
    go, target = shutil.which("go"), tmp_path_factory.mktemp("go") / "clients"
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    if go is None:
        pytest.skip(MISSING)
    download = subprocess.run([go, "mod", "download"], cwd=SOURCES, env=environment, capture_output=True, check=False)
    if download.returncode != 0:
        pytest.skip(MISSING)
    build = [go, "build", "-o", str(target), "."]
    built = subprocess.run(build, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return target
