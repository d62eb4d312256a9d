"""Passwords travel inside TLS, by every protocol, unless the broker's settings say otherwise."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import httpx
import pytest
import trustme
from benchmarks.raw_client import RawClient

from flymq import FlyMQClient
from flymq.broker.access.passwords import hash_password
from flymq.model.errors import AuthenticationFailed
from flymq.testing import TestBroker, running_broker
from flymq.wire.native.messages.session import Authenticate, ErrorAnswer

GUARDED = {"auth.required": True, "auth.users": {"ada": str(hash_password("engine", salt=bytes(16)))}}
PASSWORDS = ["engine", "wrong"]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A certificate for the broker; `ca_file` is for its clients."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    return {"cert_file": folder / "cert.pem", "key_file": folder / "key.pem", "ca_file": folder / "ca.pem"}


@pytest.fixture(scope="module")
def guarded(tls: dict[str, Path]) -> Iterator[TestBroker]:
    """A broker with users and a certificate, which also takes connections without TLS."""
    settings = {**GUARDED, "tls.cert_file": str(tls["cert_file"]), "tls.key_file": str(tls["key_file"])}
    with running_broker(settings=settings) as broker:
        yield broker


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_native_login_without_tls_is_refused_whatever_the_password(guarded: TestBroker, password: str) -> None:
    client = RawClient(guarded.port)
    refused = client.ask(Authenticate(username="ada", password=password))
    client.close()
    assert isinstance(refused, ErrorAnswer)
    assert refused.code == "PLAINTEXT_LOGIN"
    assert "auth.plain_without_tls" in refused.message


def test_the_sdk_tells_why_its_login_was_refused(guarded: TestBroker) -> None:
    with pytest.raises(AuthenticationFailed, match="only inside TLS"):
        FlyMQClient(guarded.address, username="ada", password="engine").list_topics()


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_kafka_login_without_tls_is_refused_whatever_the_password(guarded: TestBroker, password: str) -> None:
    refused: list[confluent_kafka.KafkaError] = []
    client = confluent_kafka.Consumer(
        {
            "bootstrap.servers": guarded.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ada",
            "sasl.password": password,
            "group.id": "g",
            "error_cb": refused.append,
        }
    )
    while not any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in refused):
        client.poll(0.05)
    client.close()
    assert "auth.plain_without_tls" in next(
        error.str() for error in refused if error.code() == confluent_kafka.KafkaError._AUTHENTICATION
    )


@pytest.mark.parametrize("auth", [("ada", "engine"), ("ada", "wrong"), None])
def test_http_without_tls_is_refused_and_no_browser_asks_for_a_password(
    guarded: TestBroker, auth: tuple[str, str] | None
) -> None:
    refused = httpx.get(f"http://127.0.0.1:{guarded.port}/api/v1/topics", auth=auth)
    assert (refused.status_code, refused.json()["code"]) == (403, "PLAINTEXT_LOGIN")
    assert "auth.plain_without_tls" in refused.json()["detail"]
    assert "WWW-Authenticate" not in refused.headers


def test_every_protocol_logs_in_inside_tls(guarded: TestBroker, tls: dict[str, Path]) -> None:
    ca_file = str(tls["ca_file"])
    with FlyMQClient(guarded.address, username="ada", password="engine", tls_ca_file=ca_file) as client:
        assert client.list_topics() == []
    context = ssl.create_default_context(cafile=ca_file)
    url = f"https://127.0.0.1:{guarded.port}/api/v1/topics"
    assert httpx.get(url, auth=("ada", "engine"), verify=context).status_code == 200
    assert httpx.get(url, auth=("ada", "wrong"), verify=context).status_code == 401
    kafka = confluent_kafka.Producer(
        {
            "bootstrap.servers": guarded.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": ca_file,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "ada",
            "sasl.password": "engine",
        }
    )
    assert kafka.list_topics(timeout=20).brokers


def test_a_broker_that_nobody_can_log_in_to_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flymq"):
        with running_broker(settings=GUARDED):
            pass
        (warning,) = [each for each in caplog.messages if "no client can log in" in each]
        assert "tls.cert_file" in warning
        assert "auth.plain_without_tls" in warning
        caplog.clear()
        with running_broker(settings={**GUARDED, "auth.plain_without_tls": True}) as broker:
            url = f"http://127.0.0.1:{broker.port}/api/v1/topics"
            assert httpx.get(url, auth=("ada", "engine")).status_code == 200
        assert not any("no client can log in" in each for each in caplog.messages)
