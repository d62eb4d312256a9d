"""Start, stop, crash and start again; limits, encryption and login: what an operator relies on."""

import contextlib
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme
from benchmarks.raw_client import RawClient
from tests.broker_process import BrokerProcess

from flymq import FlyMQClient
from flymq.broker.access.passwords import hash_password
from flymq.model.delivery import Acks
from flymq.model.errors import AddressInUse, DirectoryLocked
from flymq.record.batch import encode_batch
from flymq.record.reading import parse_records
from flymq.testing import running_broker
from flymq.wire.native.codec import encode_request
from flymq.wire.native.messages.records import Fetch, FetchPartition, PartitionBatches, Produce, ProduceBatch
from flymq.wire.native.messages.session import Authenticate, AuthenticateAnswer, Done, ErrorAnswer, Hello, Ping
from flymq.wire.native.messages.topics import CreateTopic, ListTopics
from flymq.wire.native.messages.transactions import InitProducer


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], BrokerProcess]]:
    """Start a broker on the test's directory, as often as it likes; none is left behind."""
    started: list[BrokerProcess] = []

    def start() -> BrokerProcess:
        started.append(BrokerProcess(tmp_path))
        return started[-1]

    yield start
    for broker in started:
        broker.kill()


def fetch_all(client: RawClient, topic: str = "t") -> list[bytes | None]:
    answer = client.ask(Fetch(partitions=[FetchPartition(topic, 0, 0, max_bytes=8 << 20)], max_bytes=8 << 20))
    return [record.value for record in parse_records(answer.partitions[0].batches)]


def produce(client: RawClient, value: bytes, **fields: Any) -> Any:
    batch = encode_batch([(None, value)], **fields)
    return client.ask(ProduceBatch(partitions=[PartitionBatches("t", 0, batch)], acks=Acks.ALL))


def test_topics_records_and_the_cluster_id_outlive_a_restart(tmp_path):
    with running_broker(tmp_path) as broker:
        client = RawClient(broker.port)
        cluster_id = client.ask(Hello()).cluster_id
        client.ask(CreateTopic(topic="t", partitions=2, settings={"retention.ms": 5000}))
        produce(client, b"kept")
        client.close()
    with running_broker(tmp_path) as broker:
        client = RawClient(broker.port)
        assert client.ask(Hello()).cluster_id == cluster_id
        assert [(topic.topic, topic.partitions) for topic in client.ask(ListTopics()).topics] == [("t", 2)]
        assert fetch_all(client) == [b"kept"]
        client.close()


def test_sigterm_answers_what_waits_and_exits_with_zero(tmp_path, start):
    broker = start()
    client = RawClient(broker.port)
    client.ask(CreateTopic(topic="t", partitions=1))
    client.socket.sendall(encode_request(Fetch(id=5, partitions=[FetchPartition("t", 0, 0)], max_wait_ms=60_000)))
    assert isinstance(client.ask(Ping(id=6)), Done)
    broker.process.send_signal(signal.SIGTERM)
    assert client.receive().id == 5
    assert client.socket.recv(1) == b""
    client.close()
    broker.process.communicate(timeout=30)  # half the time the fetch would have waited
    assert broker.process.returncode == 0
    assert (next(tmp_path.glob("topics/t~*")) / "0" / "clean").exists()


def test_a_client_that_ends_its_side_gets_its_responses_and_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("flymq.gateways.connection.AFTER_END_S", 0.2)
    with running_broker(tmp_path) as broker:
        client = RawClient(broker.port)
        client.ask(CreateTopic(topic="t", partitions=1))
        client.socket.sendall(encode_request(Ping(id=6)))
        client.socket.shutdown(socket.SHUT_WR)
        assert isinstance(client.receive(), Done)
        assert client.socket.recv(1) == b""
        client.close()
        client = RawClient(broker.port)
        client.socket.settimeout(30)
        client.socket.sendall(encode_request(Fetch(id=5, partitions=[FetchPartition("t", 0, 0)], max_wait_ms=60_000)))
        client.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            assert client.socket.recv(1) == b""
        client.close()


def test_a_client_that_has_ended_its_side_may_read_a_long_response_slowly(tmp_path, monkeypatch):
    monkeypatch.setattr("flymq.gateways.connection.AFTER_END_S", 0.05)
    with running_broker(tmp_path) as broker:
        client = RawClient(broker.port)
        client.ask(CreateTopic(topic="t", partitions=1, settings={"max.message.bytes": 16 << 20}))
        for _ in range(4):
            produce(client, bytes(8 << 20))
        wanted = [FetchPartition("t", 0, 0, max_bytes=32 << 20)]
        client.socket.sendall(encode_request(Fetch(id=5, partitions=wanted, max_bytes=32 << 20)))
        client.socket.shutdown(socket.SHUT_WR)
        time.sleep(0.5)  # much longer than it may wait, with a full socket
        assert len(client.receive().partitions[0].batches) > 16 << 20
        client.close()


@pytest.mark.slow
@pytest.mark.parametrize("round_number", range(3))
def test_kill_9_loses_nothing_acknowledged_and_repeats_nothing_of_an_idempotent_producer(start, round_number):
    broker = start()
    client = RawClient(broker.port)
    client.ask(CreateTopic(topic="t", partitions=1, settings={"persistence": "fsync"}))
    producer = client.ask(InitProducer())
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    sent = 0
    for _ in range(3):
        # As many requests as a producer has under way when the broker dies; those without an answer are sent again.
        for number in range(sent, sent + 5):
            batch = encode_batch([(None, b"%d" % number)], base_sequence=number, **identity)
            client.socket.sendall(
                encode_request(ProduceBatch(id=number, partitions=[PartitionBatches("t", 0, batch)], acks=Acks.ALL))
            )
        answered = 1 + round_number
        for _ in range(answered):
            assert client.receive().partitions[0].error is None
        assert broker.end(signal.SIGKILL) == -signal.SIGKILL
        client.close()
        broker = start()
        client = RawClient(broker.port)
        sent += answered
        stored = fetch_all(client)
        assert stored[:sent] == [b"%d" % number for number in range(sent)]
        for number in range(sent, len(stored)):
            answer = produce(client, b"%d" % number, base_sequence=number, **identity)
            assert answer.partitions[0].base_offset == number
        sent = len(stored)
    assert fetch_all(client) == [b"%d" % number for number in range(sent)]
    client.close()
    assert broker.end(signal.SIGTERM) == 0


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path):
    with running_broker(tmp_path), pytest.raises(DirectoryLocked, match="in use by process"), running_broker(tmp_path):
        pass


def test_a_busy_port_is_named(tmp_path):
    with running_broker() as broker:
        settings = {"listener.port": broker.port}
        with pytest.raises(AddressInUse, match=str(broker.port)), running_broker(tmp_path, settings):
            pass
    with running_broker(tmp_path):  # and the directory is free again
        pass


def test_connections_over_the_limit_are_refused_and_the_others_go_on():
    with running_broker(settings={"limits.connections_max": 2}) as broker:
        clients = [RawClient(broker.port) for _ in range(2)]
        assert all(isinstance(client.ask(Ping()), Done) for client in clients)
        third = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
        third.sendall(encode_request(Ping()))
        assert _reads_nothing(third)
        assert isinstance(clients[0].ask(Ping()), Done)
        for client in clients:
            client.close()
        third.close()


def _reads_nothing(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_client_that_does_not_read_its_answers_is_not_read_either():
    with running_broker(settings={"limits.buffer_bytes_max": 2 << 20, "limits.request_bytes_max": 1 << 20}) as broker:
        client, other = RawClient(broker.port), RawClient(broker.port)
        client.ask(CreateTopic(topic="t", partitions=1))
        for _ in range(4):
            produce(client, b"x" * 100_000)
        fetch = bytes(encode_request(Fetch(id=1, partitions=[FetchPartition("t", 0, 0, max_bytes=200_000)])))
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):  # the broker stops reading: its answers, 100 KB each, are not taken
            for _ in range(2_000_000):
                client.socket.sendall(fetch)
        assert isinstance(other.ask(Ping()), Done)
        client.close()
        other.close()


def test_a_client_over_its_quota_is_slowed_down():
    with running_broker(settings={"quotas.produce_bytes_per_s": 100_000}) as broker:
        client = RawClient(broker.port)
        client.ask(CreateTopic(topic="t", partitions=1))
        started = time.monotonic()
        for _ in range(3):  # one second's worth is free, the second one owes half a second
            produce(client, b"x" * 75_000)
        assert time.monotonic() - started >= 0.4
        client.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def tls_settings(tmp_path: Path, authority: trustme.CA) -> dict[str, str]:
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return {"tls.cert_file": str(tmp_path / "cert.pem"), "tls.key_file": str(tmp_path / "key.pem")}


def test_plain_and_encrypted_clients_share_the_port(tmp_path, authority):
    with running_broker(settings=tls_settings(tmp_path, authority)) as broker:
        plain, encrypted = RawClient(broker.port), RawClient(broker.port)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        encrypted.socket = context.wrap_socket(encrypted.socket, server_hostname="localhost")
        plain.ask(CreateTopic(topic="t", partitions=1))
        for client in (plain, encrypted):
            produce(client, b"x" * 300_000)
        assert fetch_all(encrypted) == fetch_all(plain) == [b"x" * 300_000] * 2
        plain.close()
        encrypted.close()


def test_a_client_without_a_certificate_is_refused_where_one_is_required(tmp_path, authority):
    settings = tls_settings(tmp_path, authority)
    settings |= {"tls.ca_file": str(tmp_path / "ca.pem"), "tls.client_auth": "required"}
    with running_broker(settings=settings) as broker:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client = RawClient(broker.port)
            with context.wrap_socket(client.socket, server_hostname="localhost") as client.socket:
                client.ask(Ping())
        certificate = authority.issue_cert("client@example.org")
        certificate.configure_cert(context)
        client = RawClient(broker.port)
        with context.wrap_socket(client.socket, server_hostname="localhost") as client.socket:
            assert isinstance(client.ask(Ping()), Done)


PLAINTEXT: dict[str, bytes] = {
    "native": bytes(encode_request(Ping())),
    "http": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "kafka": bytes.fromhex("0000000a00120000000000070000"),
}


@pytest.mark.parametrize(
    "demand", [{"tls.required": True}, {"tls.client_auth": "required"}], ids=lambda it: next(iter(it))
)
@pytest.mark.parametrize("protocol", PLAINTEXT)
def test_plaintext_is_refused_on_every_port_where_tls_is_required(tmp_path, authority, protocol, demand):
    settings = {**tls_settings(tmp_path, authority), **demand, "listener.http_port": 0}
    settings["tls.ca_file"] = str(tmp_path / "ca.pem")
    with running_broker(settings=settings) as broker:
        for port in (broker.port, broker.http_port):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
                answer = b""
                with contextlib.suppress(ConnectionError):
                    plain.sendall(PLAINTEXT[protocol])
                    answer = plain.recv(1)
                assert answer == b""


def test_nothing_is_served_before_the_login_where_one_is_required(tmp_path):
    config = tmp_path / "flymq.toml"
    hashed = hash_password("secret", salt=b"0123456789abcdef")
    config.write_text(f'[auth]\nrequired = true\nplain_without_tls = true\n[auth.users]\nada = "{hashed}"\n')
    with running_broker(config_file=config) as broker:
        client = RawClient(broker.port)
        assert client.ask(Hello()).authentication == ["PLAIN"]
        assert client.ask(ListTopics()).code == "UNAUTHENTICATED"
        refused = client.ask(Authenticate(username="ada", password="wrong"))
        assert isinstance(refused, ErrorAnswer)
        assert refused.code == "AUTHENTICATION_FAILED"
        assert "secret" not in refused.message
        assert client.socket.recv(1) == b""
        client.close()
        client = RawClient(broker.port)
        assert isinstance(client.ask(Authenticate(username="ada", password="secret")), AuthenticateAnswer)
        assert client.ask(ListTopics()).topics == []
        client.close()


def test_two_brokers_of_one_process_keep_what_they_receive_apart() -> None:
    def write_and_read(address: str, value: bytes) -> set[bytes]:
        with FlyMQClient(address) as client:
            client.create_topic("letters", 1)
            for _ in range(100):
                client.produce_batch("letters", [value] * 100)
            found: list[bytes] = []
            while len(found) < 10_000:
                found += [record.value for record in client.fetch("letters", 0, len(found), max_bytes=1 << 20)]
        return set(found)

    with running_broker() as one, running_broker() as other, ThreadPoolExecutor() as threads:
        a = threads.submit(write_and_read, one.address, b"a" * 1000)
        b = threads.submit(write_and_read, other.address, b"b" * 1000)
        assert (a.result(), b.result()) == ({b"a" * 1000}, {b"b" * 1000})


def test_what_a_broker_stores_is_for_its_own_user_alone(tmp_path):
    data_dir = tmp_path / "new" / "data"
    with running_broker(data_dir) as broker:
        client = RawClient(broker.port)
        client.ask(Produce(topic="t", value=b"secret"))
        client.close()
        found = [data_dir, *data_dir.rglob("*")]
        assert any(path.name == "metadata.db" for path in found)
        assert [str(path) for path in found if path.stat().st_mode & 0o077] == []
