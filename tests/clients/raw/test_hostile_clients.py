"""Attackers hold what they can, and a well-behaved client beside them is served."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from benchmarks.raw_client import RawClient

from flymq.broker.access.passwords import hash_password
from flymq.model.delivery import Acks
from flymq.record.batch import encode_batch
from flymq.testing import TestBroker, running_broker
from flymq.wire.native.codec import encode_request
from flymq.wire.native.framing import frame_header
from flymq.wire.native.messages.push import PushPartition, StartPush
from flymq.wire.native.messages.records import (
    AT_LATEST,
    ListOffsets,
    OffsetQuery,
    PartitionBatches,
    Produce,
    ProduceBatch,
)
from flymq.wire.native.messages.session import Authenticate, AuthenticateAnswer, Done, ErrorAnswer, Ping
from flymq.wire.native.messages.topics import CreateTopic, ListTopics
from flymq.wire.native.opcodes import Opcode

MB = 1 << 20


@contextmanager
def connected(broker: TestBroker) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as raw:
        yield raw


@contextmanager
def client_of(broker: TestBroker) -> Iterator[RawClient]:
    client = RawClient(broker.port)
    client.socket.settimeout(20)
    try:
        yield client
    finally:
        client.close()


def metric(broker: TestBroker, name: str, *, login: str = "") -> float:
    page = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=20)
    page.request("GET", "/metrics", headers={"Authorization": f"Basic {b64encode(login.encode()).decode()}"})
    found = re.search(rf"^{re.escape(name)} (\S+)$", page.getresponse().read().decode(), re.MULTILINE)
    page.close()
    assert found, name
    return float(found[1])


LOGIN = Authenticate(mechanism="PLAIN", username="ada", password="secret")


def logins(broker: TestBroker, result: str) -> float:
    return metric(broker, f'flymq_logins_total{{result="{result}"}}', login="ada:secret")


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # a number, and nobody tells when it changes: the test's own timeout ends it
        pass


def is_closed(raw: socket.socket) -> bool:
    try:
        while raw.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def native_start(size: int) -> bytes:
    return frame_header(Opcode.PRODUCE_BATCH, size)


def kafka_start(size: int) -> bytes:
    return struct.pack(">ihhih", size, 0, 7, 1, -1)


def http_start(size: int) -> bytes:
    return (
        b"POST /api/v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % size
    )


STARTS = {"native": native_start, "kafka": kafka_start, "http": http_start}


def produce(client: RawClient, size: int = 100) -> Any:
    batch = bytes(encode_batch([(None, bytes(size))], timestamp_ms=1))
    answer = client.ask(ProduceBatch(id=1, partitions=[PartitionBatches("orders", 0, batch)]))
    assert answer.partitions[0].error is None
    return answer


@pytest.mark.parametrize("protocol", ["native", "kafka"])
def test_five_unfinished_requests_of_63_mib_delay_nobody(protocol: str) -> None:
    with running_broker() as broker, ExitStack() as attack, client_of(broker) as client:
        client.ask(CreateTopic(topic="orders", partitions=1, settings={"max.message.bytes": 32 * MB}))
        for _ in range(5):
            attacker = attack.enter_context(connected(broker))
            attacker.sendall(STARTS[protocol](63 * MB) + bytes(MB))
        wait_until(lambda: metric(broker, "flymq_buffer_waits_total") == 4)
        assert 63 * MB <= metric(broker, "flymq_buffer_bytes") < 64 * MB
        produce(client)
        produce(client, MB)
        produce(client, 16 * MB)
        with connected(broker) as late:  # a new client finds its way too
            late.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert late.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("protocol", STARTS)
def test_a_half_sent_request_is_given_up_and_its_memory_returns(protocol: str) -> None:
    settings = {"limits.request_timeout_ms": 300, "rest.body_timeout_ms": 300}
    with running_broker(settings=settings) as broker, connected(broker) as attacker:
        attacker.sendall(STARTS[protocol](10 * MB) + bytes(MB))
        assert is_closed(attacker)
        wait_until(lambda: metric(broker, "flymq_buffer_bytes") == 0)
        if protocol != "http":
            assert metric(broker, 'flymq_connections_expired_total{reason="request"}') == 1


def test_a_connection_may_be_idle_between_two_requests() -> None:
    with running_broker(settings={"limits.request_timeout_ms": 20}) as broker, client_of(broker) as client:
        client.ask(Ping())
        with connected(broker) as attacker:  # until its half request is given up, time has passed for both
            attacker.sendall(native_start(100))
            assert is_closed(attacker)
        assert isinstance(client.ask(Ping()), Done)


def test_http_bodies_wait_for_memory_and_small_requests_do_not() -> None:
    with running_broker(settings={"limits.buffer_bytes_max": 64 * MB}) as broker, ExitStack() as attack:
        for _ in range(30):
            attacker = attack.enter_context(connected(broker))
            attacker.sendall(http_start(16 * MB) + bytes(100_000))
        wait_until(lambda: metric(broker, "flymq_buffer_waits_total") == 29)
        assert metric(broker, "flymq_buffer_bytes") < 64 * MB
        with client_of(broker) as client:
            client.ask(CreateTopic(topic="orders", partitions=1))
            produce(client)


# --- before the login -----------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Path:
    path = tmp_path / "flymq.toml"
    users = f'[auth.users]\nada = "{hash_password("secret", salt=bytes(16))}"\n'
    path.write_text(f"[auth]\nrequired = true\nplain_without_tls = true\n{users}")
    return path


@pytest.mark.parametrize("protocol", ["native", "kafka"])
def test_before_the_login_only_small_requests_are_received(guarded: Path, protocol: str) -> None:
    with running_broker(config_file=guarded) as broker:
        with connected(broker) as attacker:
            attacker.sendall(STARTS[protocol](17 << 10))
            assert is_closed(attacker)
        with client_of(broker) as client:
            client.ask(Authenticate(mechanism="PLAIN", username="ada", password="secret"))
            client.ask(CreateTopic(topic="orders", partitions=1))
            produce(client, 900_000)


@pytest.mark.parametrize("first", [b"", b"\x00", frame_header(Opcode.HELLO, 1) + b"\x80"])
def test_who_does_not_log_in_is_disconnected(guarded: Path, first: bytes) -> None:
    settings = {"auth.login_timeout_ms": 300, "limits.request_timeout_ms": 300}
    with running_broker(config_file=guarded, settings=settings) as broker, connected(broker) as attacker:
        attacker.sendall(first)
        assert is_closed(attacker)


# --- logins ---------------------------------------------------------------------------------------------------------


def test_8000_pipelined_guesses_get_one_answer_and_disconnect_the_guesser(guarded: Path) -> None:
    with running_broker(config_file=guarded) as broker, client_of(broker) as client:
        client.ask(Authenticate(mechanism="PLAIN", username="ada", password="secret"))
        client.ask(CreateTopic(topic="orders", partitions=1))
        with client_of(broker) as attacker:
            guesses = [Authenticate(mechanism="PLAIN", username="ada", password=f"guess {n}") for n in range(8000)]
            with suppress(ConnectionError):
                attacker.socket.sendall(b"".join(bytes(encode_request(guess)) for guess in guesses))
            produce(client)
            with suppress(ConnectionError):
                assert attacker.receive().code == "AUTHENTICATION_FAILED"
            assert is_closed(attacker.socket)
        assert logins(broker, "failed") <= 2  # the first, and the second if the first had ended


def test_a_flood_of_guessing_connections_is_refused_and_the_owner_logs_in(guarded: Path) -> None:
    with running_broker(config_file=guarded) as broker, ExitStack() as attack:
        with client_of(broker) as client:
            assert isinstance(client.ask(LOGIN), AuthenticateAnswer)
        guess = bytes(encode_request(Authenticate(mechanism="PLAIN", username="ada", password="wrong")))
        attackers = [attack.enter_context(connected(broker)) for _ in range(400)]
        for attacker in attackers:
            attacker.sendall(guess)
        with client_of(broker) as client:
            assert isinstance(client.ask(LOGIN), AuthenticateAnswer)
            client.ask(CreateTopic(topic="orders", partitions=1))
            produce(client)
        assert logins(broker, "refused") > 100


def test_a_kafka_client_that_guesses_is_disconnected(guarded: Path) -> None:
    with running_broker(config_file=guarded) as broker, connected(broker) as attacker:
        handshake = struct.pack(">hhihh", 17, 1, 1, -1, 5) + b"PLAIN"
        guess = struct.pack(">hhihi", 36, 0, 2, -1, 10) + b"\0ada\0wrong"
        attacker.sendall(struct.pack(">i", len(handshake)) + handshake)
        with suppress(ConnectionError):
            attacker.sendall((struct.pack(">i", len(guess)) + guess) * 1000)
        assert is_closed(attacker)
        assert logins(broker, "failed") <= 2


def test_an_http_client_that_guesses_is_disconnected(guarded: Path) -> None:
    with running_broker(config_file=guarded) as broker, connected(broker) as attacker:
        attacker.sendall(
            b"GET /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YWRhOndyb25n\r\n\r\n" * 1000
        )
        assert b"401 Unauthorized" in attacker.recv(1000)
        assert is_closed(attacker)
        assert logins(broker, "failed") == 1


# --- the other direction --------------------------------------------------------------------------------------------


def test_a_client_that_does_not_read_stops_being_served_and_holds_little_memory() -> None:
    with running_broker() as broker, client_of(broker) as client, connected(broker) as attacker:
        for number in range(200):
            client.ask(CreateTopic(topic=f"a-topic-with-a-rather-long-name-{number}", partitions=1))
        attacker.setblocking(False)
        request = bytes(encode_request(ListTopics())) * 10_000
        sent = quiet = 0
        while quiet < 1000:  # until the broker takes nothing more: its answers would have 10 KB each
            try:
                sent += attacker.send(memoryview(request)[sent % len(request) :])
                quiet = 0
            except BlockingIOError:
                quiet += 1
                client.ask(Ping())
        assert sent < 20 * MB
        assert metric(broker, "flymq_buffer_bytes") < 10 * MB


def test_requests_without_answers_are_served_in_turns_too() -> None:
    with running_broker() as broker, client_of(broker) as client:
        client.ask(CreateTopic(topic="orders", partitions=1))
        unanswered = bytes(encode_request(Produce(topic="orders", value=b"", acks=Acks.NONE)))
        client.socket.sendall(unanswered * 5000 + bytes(encode_request(Ping(id=7))))
        assert client.receive().id == 7
        found = client.ask(ListOffsets(partitions=[OffsetQuery("orders", 0, AT_LATEST)]))
        assert found.partitions[0].offset == 5000


def test_a_client_that_has_said_all_gets_all_answers() -> None:
    with running_broker() as broker, client_of(broker) as client:
        pings = b"".join(bytes(encode_request(Ping(id=number))) for number in range(20_000))
        sending = threading.Thread(target=client.socket.sendall, args=(pings,))
        sending.start()
        assert [client.receive().id for _ in range(20_000)] == list(range(20_000))
        sending.join()
        client.socket.sendall(pings[:100_000])
        client.socket.shutdown(socket.SHUT_WR)
        assert [client.receive().id for _ in range(1000)] == list(range(1000))
        assert is_closed(client.socket)


def test_a_push_with_endless_credit_waits_for_a_client_that_does_not_read() -> None:
    with running_broker() as broker, client_of(broker) as client, client_of(broker) as attacker:
        client.ask(CreateTopic(topic="orders", partitions=1))
        for _ in range(100):
            produce(client, 900_000)
        push = StartPush(subscription=1, partitions=[PushPartition("orders", 0, 0)], credit_bytes=(1 << 32) - 1)
        assert not isinstance(attacker.ask(push), ErrorAnswer)
        for _ in range(1000):
            client.ask(Ping())
        assert metric(broker, "flymq_buffer_bytes") < 20 * MB
        received = 0
        while received < 90_000_000:  # it goes on when the client reads
            received += len(attacker.socket.recv(MB))
