"""Settings are checked when a client is made, and a mistake is named."""

from dataclasses import fields

import pytest

from flymq.client.settings import (
    ClientSettings,
    ConnectionConfig,
    ConnectionSettings,
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
    check_known,
    parse_addresses,
)
from flymq.model.delivery import Acks, Isolation
from flymq.model.errors import InvalidSetting, UnsupportedCompression
from flymq.record.compression import Compression


@pytest.mark.parametrize(
    ("config", "settings"),
    [(ConnectionConfig, ConnectionSettings), (ProducerConfig, ProducerSettings), (ConsumerConfig, ConsumerSettings)],
)
def test_every_setting_can_be_given_as_a_keyword(config, settings):
    assert {field.name for field in fields(config)} - {"addresses"} == set(settings.__annotations__)


def test_the_defaults_are_what_the_design_says():
    producer, consumer, connection = ProducerConfig(), ConsumerConfig(), ConnectionConfig()
    assert connection.addresses == (("localhost", 9092),)
    assert connection.request_timeout_ms == 30_000
    assert (producer.acks, connection.retry_backoff_ms) == (Acks.LEADER, 100)
    assert (consumer.poll_records_max, consumer.session_timeout_ms) == (500, 30_000)
    assert consumer.isolation is Isolation.READ_COMMITTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker:1234", [("broker", 1234)]),
        ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
        ("broker", [("broker", 9092)]),
        ("[::1]:7000", [("::1", 7000)]),
        ("[::1]", [("::1", 9092)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
    ],
)
def test_addresses_are_hosts_and_ports(text, expected):
    assert list(parse_addresses(text)) == expected


def test_without_an_address_the_environment_or_localhost_is_used(monkeypatch):
    monkeypatch.delenv("FLYMQ_BOOTSTRAP", raising=False)
    assert parse_addresses(None) == (("localhost", 9092),)
    monkeypatch.setenv("FLYMQ_BOOTSTRAP", "elsewhere:1")
    assert parse_addresses(None) == (("elsewhere", 1),)


@pytest.mark.parametrize("text", ["", ",", ":9092", "host:port", "host:0", "host:70000", "host:-1"])
def test_what_is_not_an_address_is_refused(text):
    with pytest.raises(InvalidSetting):
        parse_addresses(text)


def test_levels_and_compressions_are_given_by_name():
    said = ProducerConfig(acks="all", compression="zstd")  # type: ignore[arg-type]
    assert said == ProducerConfig(acks=Acks.ALL, compression=Compression.ZSTD)
    assert ProducerConfig(acks=-1).acks is Acks.ALL  # type: ignore[arg-type]
    consumer = ConsumerConfig(isolation="read_uncommitted")  # type: ignore[arg-type]
    assert consumer.isolation is Isolation.READ_UNCOMMITTED


@pytest.mark.parametrize(
    ("config", "settings", "named"),
    [
        (ProducerConfig, {"acks": "some"}, "acks"),
        (ProducerConfig, {"linger_ms": -1}, "linger_ms"),
        (ProducerConfig, {"batch_bytes_max": 0}, "batch_bytes_max"),
        (ProducerConfig, {"buffer_bytes_max": 10}, "buffer_bytes_max"),
        (ProducerConfig, {"retries": -1}, "retries"),
        (ProducerConfig, {"acks": "none", "idempotent": True}, "idempotent"),
        (ConsumerConfig, {"start": "middle"}, "start"),
        (ConsumerConfig, {"isolation": "chaos"}, "isolation"),
        (ConsumerConfig, {"session_timeout_ms": 1000}, "session_timeout_ms"),
        (ConsumerConfig, {"poll_records_max": True}, "poll_records_max"),
        (ConnectionConfig, {"username": "me"}, "password"),
        (ConnectionConfig, {"tls_key_file": "key.pem"}, "tls_cert_file"),
        (ConnectionConfig, {"request_timeout_ms": "soon"}, "request_timeout_ms"),
    ],
)
def test_a_wrong_setting_is_named(config, settings, named):
    with pytest.raises(InvalidSetting, match=named):
        config(**settings)


def test_an_unknown_compression_is_refused():
    with pytest.raises(UnsupportedCompression):
        ProducerConfig(compression="rar")  # type: ignore[arg-type]


def test_a_misspelt_setting_is_refused_and_the_known_ones_are_listed():
    with pytest.raises(InvalidSetting, match="lingerms") as refusal:
        check_known({"lingerms": 5}, ClientSettings)
    assert "linger_ms" in refusal.value.hint


def test_missing_certificate_files_are_a_wrong_setting(tmp_path):
    with pytest.raises(InvalidSetting, match="tls_ca_file"):
        ConnectionConfig(tls_ca_file=tmp_path / "nowhere.pem").ssl_context()
