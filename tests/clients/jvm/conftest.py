"""The brokers, jars and compiled programs of these tests.

Every test that takes `server` runs on FlyMQ; with FLYMQ_TEST_KAFKA=1 also on Apache Kafka, as `make peers` installs it,
and must end the same way there.
"""

import os
from collections.abc import Iterator
from itertools import count

import pytest
from tests.clients.jvm import maven
from tests.clients.jvm.java import Java, build
from tests.clients.servers import SERVERS, Server, running_server

_numbers = count()


@pytest.fixture(scope="module", params=SERVERS)
def server(request, tmp_path_factory) -> Iterator[Server]:
    with running_server(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A name nobody else uses."""
    return f"topic-{next(_numbers)}"


def _programs(tmp_path_factory: pytest.TempPathFactory, name: str, *folders: str) -> Java:
    classpath = maven.find_classpath(name)
    if classpath is None:
        pytest.skip(maven.MISSING)
    return build(classpath, tmp_path_factory.mktemp(name), *folders)


@pytest.fixture(scope="session")
def kafka4(tmp_path_factory) -> Java:
    """Programs with Apache Kafka's newest jars."""
    return _programs(tmp_path_factory, f"kafka-{maven.KAFKA}", "clients", "kafka4")


@pytest.fixture(scope="session")
def kafka3(tmp_path_factory) -> Java:
    """Those that need clients alone, with an older one."""
    return _programs(tmp_path_factory, f"clients-{maven.KAFKA_BEFORE}", "clients", "kafka3")


@pytest.fixture(params=["kafka4", "kafka3"])
def java(request) -> Java:
    """The programs that both versions of the client run."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Java)
    return found


@pytest.fixture(scope="session")
def spring(tmp_path_factory) -> Java:
    """An application of Spring Boot, with the version of the client that it brings along."""
    return _programs(tmp_path_factory, f"spring-{maven.SPRING_BOOT}", "spring")


@pytest.fixture(scope="session")
def flink(tmp_path_factory) -> Java:
    """A job of Flink in one process."""
    if not os.environ.get("FLYMQ_TEST_HEAVY"):
        pytest.skip("Flink is a download of 85 MB: FLYMQ_TEST_HEAVY=1 runs its test")
    return _programs(tmp_path_factory, f"flink-{maven.FLINK}", "flink")
