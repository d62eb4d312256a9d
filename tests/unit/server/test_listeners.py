"""Additional listeners, and addresses that nobody can connect to."""

from __future__ import annotations

import pytest

from flymq.model.errors import InvalidSetting
from flymq.server.listeners import AdditionalListener, parse_additional
from flymq.server.settings import load_config


def test_an_additional_listener_has_an_address_to_listen_on_and_one_to_advertise() -> None:
    text = "outside://0.0.0.0:9094 as kafka.example.com:19094, vpn://10.0.0.7:9095,six://[::]:9096 as [fd00::1]:9096"
    assert parse_additional(text, 9092) == (
        AdditionalListener("outside", "0.0.0.0", 9094, "kafka.example.com", 19094),
        AdditionalListener("vpn", "10.0.0.7", 9095, "10.0.0.7", 9095),
        AdditionalListener("six", "::", 9096, "fd00::1", 9096),
    )
    assert parse_additional(None, 9092) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0.0.0.0:9094", "is not NAME://HOST:PORT"),
        ("outside://a", "is not HOST:PORT"),
        ("outside://a:0", "is not HOST:PORT"),
        ("outside://a:70000", "is not HOST:PORT"),
        ("outside://0.0.0.0:9094", "nobody can connect to 0.0.0.0:9094"),
        ("outside://0.0.0.0:9094 as 0.0.0.0:9094", "nobody can connect"),
        ("a://h:1, a://h:2", "'a' twice"),
        ("a://h:9092", "the port of another listener"),
        ("a://h:1, b://g:1", "the port of another listener"),
    ],
)
def test_an_additional_listener_that_cannot_work_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        load_config(flags={"listener.additional": text})


@pytest.mark.parametrize(
    "flags", [{"listener.host": "0.0.0.0"}, {"listener.host": "::"}, {"listener.advertised_host": "0.0.0.0"}]
)
def test_a_broker_of_a_cluster_that_nobody_could_reach_is_refused_and_told_what_to_set(flags: dict[str, str]) -> None:
    clustered = {**flags, "cluster.store": "/run/flymq.sock", "broker.id": 1}
    with pytest.raises(InvalidSetting, match="other brokers and clients cannot connect to") as refused:
        load_config(flags=clustered)
    assert "listener.advertised_host" in refused.value.hint
    load_config(flags={**clustered, "listener.advertised_host": "broker-1.example"})
    load_config(flags=flags)  # a single broker tells each client the address that it has connected to
