"""After the broker has aborted a transaction, since it timed out or the broker was killed, its producer goes on."""

from __future__ import annotations

import gc
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.clients.kafka.peers import PEERS, WAIT_S
from tests.clients.kafka.writers import WRITERS, Writer

from flymq import FlyMQClient
from flymq.testing import TestBroker

TIMEOUT_MS = 1_500
ABORTS_AFTER_COMMIT = ["librdkafka"]
"""With the others, any error of EndTxn is the end of the producer: they need a new one."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect the sockets that kafka-python leaves open when it cannot connect, before tests of others run."""
    yield
    gc.collect()


def wait_until_aborted(broker: TestBroker, name: str) -> None:
    """Wait until the transaction has timed out."""
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        with urllib.request.urlopen(f"http://{broker.address}/api/v1/transactions/{name}") as answer:
            if json.load(answer)["state"] == "aborted":
                return
    pytest.fail(f"the transaction of {name} did not time out")


def fail_once(step: Callable[[], None]) -> None:
    """Expect an error of the client, of whatever class; librdkafka keeps some for the next call."""
    with pytest.raises(Exception):  # noqa: B017
        step()


def go_on(writer: Writer, topic: str) -> None:
    """Abort, and write the next transaction."""
    writer.abort()
    writer.write(topic, b"next")
    writer.commit()
    writer.close()


def check(address: str, topic: str) -> None:
    values = [row.value for row in PEERS["native"].read(address, topic, 2, committed=True)]
    assert values == [b"before", b"next"]


def begin(client: str, address: str, topic: str, timeout_ms: int = 30_000) -> Writer:
    """Commit a transaction, and leave the next one open."""
    with FlyMQClient(address) as admin:
        admin.create_topic(topic, partitions=1)
    writer = WRITERS[client](address, f"writer-of-{topic}", timeout_ms)
    writer.write(topic, b"before")
    writer.commit()
    writer.write(topic, b"aborted")
    return writer


@pytest.mark.shows("transactions: go on after the broker has aborted one", by="client")
@pytest.mark.parametrize("client", WRITERS)
def test_a_producer_that_aborts_after_a_timeout_goes_on(broker: TestBroker, topic: str, client: str) -> None:
    writer = begin(client, broker.address, topic, TIMEOUT_MS)
    wait_until_aborted(broker, f"writer-of-{topic}")
    go_on(writer, topic)
    check(broker.address, topic)


@pytest.mark.shows("transactions: go on after the broker has aborted one", by="client")
@pytest.mark.parametrize("client", WRITERS)
def test_a_producer_that_writes_after_a_timeout_is_told_and_goes_on(
    broker: TestBroker, topic: str, client: str
) -> None:
    writer = begin(client, broker.address, topic, TIMEOUT_MS)
    wait_until_aborted(broker, f"writer-of-{topic}")
    fail_once(lambda: writer.write_more(topic, b"second half"))
    go_on(writer, topic)
    check(broker.address, topic)


@pytest.mark.shows("transactions: go on after the broker has aborted one", by="client")
@pytest.mark.parametrize("client", ABORTS_AFTER_COMMIT)
def test_a_producer_that_commits_after_a_timeout_is_told_and_goes_on(
    broker: TestBroker, topic: str, client: str
) -> None:
    writer = begin(client, broker.address, topic, TIMEOUT_MS)
    wait_until_aborted(broker, f"writer-of-{topic}")
    fail_once(writer.commit)
    go_on(writer, topic)
    check(broker.address, topic)


@pytest.mark.parametrize("client", sorted(WRITERS.keys() - ABORTS_AFTER_COMMIT))
def test_a_new_producer_goes_on_after_a_commit_that_came_too_late(broker: TestBroker, topic: str, client: str) -> None:
    writer = begin(client, broker.address, topic, TIMEOUT_MS)
    wait_until_aborted(broker, f"writer-of-{topic}")
    fail_once(writer.commit)
    with suppress(Exception):
        writer.close()
    fresh = WRITERS[client](broker.address, f"writer-of-{topic}")
    fresh.write(topic, b"next")
    fresh.commit()
    fresh.close()
    check(broker.address, topic)


@pytest.mark.shows("transactions: go on after the broker was killed", by="client")
@pytest.mark.parametrize("writes_more", [False, True])
@pytest.mark.parametrize("client", WRITERS)
def test_a_producer_whose_broker_was_killed_goes_on(tmp_path: Path, client: str, writes_more: bool) -> None:
    broker = BrokerProcess(tmp_path)
    try:
        writer = begin(client, broker.address, "topic")
        broker.kill()
        broker.start()
        if writes_more:
            fail_once(lambda: writer.write_more("topic", b"second half"))
        go_on(writer, "topic")
        check(broker.address, "topic")
    finally:
        broker.kill()
