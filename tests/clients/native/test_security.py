"""TLS, logging in, and encryption from end to end."""

import ssl
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme

from flymq import FlyMQClient, generate_key
from flymq.broker.access.passwords import hash_password
from flymq.errors import (
    AlteredMessage,
    AuthenticationFailed,
    BrokerUnavailable,
    ConnectionLost,
    FlyMQError,
    NotEncrypted,
    Unauthenticated,
    WrongEncryptionKey,
)
from flymq.testing import running_broker


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("127.0.0.1", "other.example"):
        certificate = authority.issue_cert(name)
        certificate.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    return folder


def tls(files: Path, name: str = "127.0.0.1", **more: object) -> dict[str, object]:
    pem = str(files / f"{name}.pem")
    return {"tls.cert_file": pem, "tls.key_file": pem, **more}


def refused(address: str, **settings: Any) -> FlyMQError:
    """Return why a client with these settings cannot connect."""
    with closing(FlyMQClient(address, **settings)) as client, pytest.raises(FlyMQError) as refusal:
        client.connect()
    return refusal.value


def test_a_client_with_the_authority_speaks_tls(files):
    with (
        running_broker(settings=tls(files)) as broker,
        FlyMQClient(broker.address, tls_enabled=True, tls_ca_file=files / "ca.pem") as client,
    ):
        client.create_topic("t", partitions=1)
        client.produce_batch("t", [bytes(1000)] * 2000)
        with client.consumer("t") as consumer:
            count = 0
            while count < 2000:
                count += len(consumer.poll(20_000))


def test_a_broker_nobody_vouches_for_is_refused(files):
    with running_broker(settings=tls(files)) as broker:
        refusal = refused(broker.address, tls_enabled=True)
    assert isinstance(refusal, BrokerUnavailable)
    assert "TLS" in refusal.message
    assert "tls_ca_file" in refusal.hint


def test_a_certificate_for_another_host_is_refused(files):
    with running_broker(settings=tls(files, "other.example")) as broker:
        refusal = refused(broker.address, tls_ca_file=files / "ca.pem")
    assert isinstance(refusal, BrokerUnavailable)
    assert "mismatch" in refusal.message


def test_a_client_shows_its_certificate_when_the_broker_asks(files):
    settings = tls(files, **{"tls.ca_file": str(files / "ca.pem"), "tls.client_auth": "required"})
    with running_broker(settings=settings) as broker:
        certificate = files / "other.example.pem"
        with FlyMQClient(broker.address, tls_ca_file=files / "ca.pem", tls_cert_file=certificate) as client:
            assert client.list_topics() == []
        assert isinstance(refused(broker.address, tls_ca_file=files / "ca.pem"), BrokerUnavailable | ConnectionLost)


def test_a_ready_made_context_is_used(files, authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with running_broker(settings=tls(files)) as broker, FlyMQClient(broker.address, tls_context=context) as client:
        assert client.list_topics() == []


def test_logging_in():
    hashed = str(hash_password("wonderland", salt=bytes(16)))
    settings = {"auth.required": True, "auth.users": {"alice": hashed}, "auth.plain_without_tls": True}
    with running_broker(settings=settings) as broker:
        with FlyMQClient(broker.address, username="alice", password="wonderland") as client:
            assert client.list_topics() == []
        assert isinstance(refused(broker.address, username="alice", password="wrong"), AuthenticationFailed)
        nameless = refused(broker.address)
        assert isinstance(nameless, Unauthenticated)
        assert "username" in nameless.hint


def test_the_broker_sees_only_ciphertext(broker, topic):
    key = generate_key()
    with FlyMQClient(broker.address, encryption_key=key) as client, FlyMQClient(broker.address) as onlooker:
        client.create_topic(topic, partitions=1)
        client.produce(topic, b"attack at dawn", key=b"general", headers=[("trace", b"1")])
        client.produce_batch(topic, [("general", "attack at noon")])
        assert all(b"attack" not in record.value for record in onlooker.fetch(topic))
        record = client.consume(topic, 0)
        assert (record.key, record.value, record.headers) == (b"general", b"attack at dawn", (("trace", b"1"),))
        with client.consumer(topic) as consumer:
            assert [record.value for record in consumer.poll(20_000)] == [b"attack at dawn", b"attack at noon"]


def test_keys_can_be_changed_while_old_messages_stay_readable(broker, topic):
    old, new = generate_key(), generate_key()
    with FlyMQClient(broker.address, encryption_key=old) as before:
        before.create_topic(topic, partitions=1)
        before.produce(topic, b"old")
    with FlyMQClient(broker.address, encryption_key=new, decryption_keys=[old]) as after:
        after.produce(topic, b"new")
        assert [record.value for record in after.fetch(topic)] == [b"old", b"new"]
    with FlyMQClient(broker.address, encryption_key=new) as forgetful:
        with pytest.raises(WrongEncryptionKey, match="at offset 0") as refusal:
            forgetful.fetch(topic)
        assert "decryption_keys" in refusal.value.hint
        assert [record.value for record in forgetful.fetch(topic, offset=1)] == [b"new"]


def test_altered_and_plain_messages_are_told_apart(broker, topic):
    key = generate_key()
    with FlyMQClient(broker.address, encryption_key=key) as client, FlyMQClient(broker.address) as tamperer:
        client.create_topic(topic, partitions=1)
        client.produce(topic, b"secret")
        original = tamperer.consume(topic, 0)
        altered = original.value[:-1] + bytes([original.value[-1] ^ 1])
        tamperer.produce(topic, altered, headers=original.headers)
        tamperer.produce(topic, b"in the clear")
        with pytest.raises(AlteredMessage):
            client.consume(topic, 1)
        with pytest.raises(NotEncrypted):
            client.consume(topic, 2)
    with FlyMQClient(broker.address, encryption_key=key, encryption_required=False) as tolerant:
        assert tolerant.consume(topic, 2).value == b"in the clear"
