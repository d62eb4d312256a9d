from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from flymq.broker.access.passwords import hash_password
from flymq.model.delivery import CleanupPolicy
from flymq.model.errors import InvalidSetting
from flymq.server.config import ClientAuth, Config, LogFormat
from flymq.server.settings import Setting, describe_settings, load_config

SETTINGS = describe_settings()
HASHED = hash_password("secret", salt=bytes(16))


def write(directory: Path, text: str) -> Path:
    path = directory / "flymq.toml"
    path.write_text(text)
    return path


# --- where settings come from ---


def test_a_broker_without_settings_has_the_documented_defaults() -> None:
    config = load_config()
    assert config == Config()
    assert (config.listener.host, config.listener.port) == ("127.0.0.1", 9092)
    assert (config.topics.default_partitions, config.topics.default_replication_factor) == (4, 1)
    assert (config.topics.defaults.retention_ms, config.topics.defaults.retention_bytes) == (7 * 86_400_000, 1 << 30)
    assert not config.tls.enabled
    assert not config.auth.required


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[listener]\nhost = 'file'\nport = 1\nbacklog = 1\n")
    environ = {"FLYMQ_LISTENER__PORT": "2", "FLYMQ_LISTENER__BACKLOG": "2", "HOME": "/root"}
    listener = load_config(file=file, environ=environ, flags={"listener.backlog": 3}).listener
    assert (listener.host, listener.port, listener.backlog) == ("file", 1 + 1, 3)


def test_a_flag_that_was_not_given_changes_nothing() -> None:
    environ = {"FLYMQ_LISTENER__PORT": "2"}
    assert load_config(environ=environ, flags={"listener.port": None}).listener.port == 2


def test_a_file_sets_every_kind_of_value(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.touch()
    file = write(
        tmp_path,
        f"""
        [broker]
        data_dir = "/var/lib/flymq"
        cluster_id = "blue"
        [tls]
        cert_file = "{certificate}"
        key_file = "{certificate}"
        ca_file = "{certificate}"
        client_auth = "required"
        [topics]
        auto_create = true
        [topics.defaults]
        retention.ms = -1
        "cleanup.policy" = "compact"
        [auth]
        required = true
        [auth.users]
        alice = "{HASHED}"
        [log]
        format = "json"
        """,
    )
    config = load_config(file=file)
    assert (config.broker.data_dir, config.broker.cluster_id) == (Path("/var/lib/flymq"), "blue")
    assert (config.tls.cert_file, config.tls.client_auth) == (certificate, ClientAuth.REQUIRED)
    assert config.topics.auto_create
    assert config.topics.defaults.retention_ms == -1
    assert config.topics.defaults.cleanup_policy is CleanupPolicy.COMPACT
    assert config.auth.users["alice"].matches("secret")
    assert config.log.format is LogFormat.JSON


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.type is not Mapping], ids=lambda s: s.name)
def test_every_setting_can_be_set_by_its_variable_and_by_its_name(setting: Setting) -> None:
    value, text = _another_value(setting)
    together: dict[str, Any] = {
        # what the rules between settings ask for, when one of them is set alone
        "limits.request_bytes_max": 1 << 10,
        "topics.defaults.max.message.bytes": 0,
        "topics.default_partitions": 1,
        "tls.cert_file": __file__,
        "tls.key_file": __file__,
        "tls.ca_file": __file__,
        "auth.users": {"alice": str(HASHED)},
        "broker.id": 7,
        "cluster.etcd_cert_file": __file__,
        "cluster.etcd_key_file": __file__,
        "cluster.etcd_username": "flymq",
        "cluster.etcd_password": "secret",
    }
    together.pop(setting.name, None)
    by_variable = load_config(environ={setting.variable: text}, flags=together)
    by_name = load_config(flags=together | {setting.name: value})
    assert reduce(getattr, setting.path, by_variable) == value != setting.default
    assert by_name == by_variable


def _another_value(setting: Setting) -> tuple[Any, str]:
    """Return a value that is not the default, and how it is written."""
    if setting.type is bool:
        return (not setting.default), str(not setting.default).lower()
    if issubclass(setting.type, Enum):
        other = next(choice for choice in setting.type if choice is not setting.default)
        return other, other.value
    if setting.type is int:
        number = setting.low if setting.low != setting.default else setting.low + 1
        return number, str(number)
    if setting.type is float:
        return 0.25, "0.25"
    text = "outside://10.0.0.1:9094" if setting.name == "listener.additional" else "text"
    return (Path(__file__), __file__) if setting.type is Path else (text, text)


def test_no_two_settings_share_a_name_or_a_variable() -> None:
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    assert len({setting.variable.replace("__", "_") for setting in SETTINGS}) == len(SETTINGS)


def test_every_setting_says_what_it_is_for() -> None:
    for setting in SETTINGS:
        assert setting.text.endswith("."), setting.name


def test_dev_mode_creates_topics_unless_that_is_said_otherwise(tmp_path: Path) -> None:
    assert load_config(flags={"broker.dev": True}).topics.auto_create
    assert not load_config(flags={"broker.dev": False}).topics.auto_create
    file = write(tmp_path, "topics.auto_create = false")
    assert not load_config(file=file, flags={"broker.dev": True}).topics.auto_create


@pytest.mark.parametrize("text", ["true", "TRUE", "1", "yes", "on"])
def test_a_switch_is_turned_on_in_the_usual_ways(text: str) -> None:
    assert load_config(environ={"FLYMQ_BROKER__DEV": text}).broker.dev


def test_an_empty_text_unsets_what_may_be_unset(tmp_path: Path) -> None:
    file = write(tmp_path, "listener.advertised_host = 'broker'\nlistener.advertised_port = 1")
    environ = {"FLYMQ_LISTENER__ADVERTISED_HOST": "", "FLYMQ_LISTENER__ADVERTISED_PORT": ""}
    assert load_config(file=file, environ=environ).listener == Config().listener


def test_variables_that_a_container_platform_invents_are_left_alone() -> None:
    environ = {
        "FLYMQ_PORT": "tcp://10.0.0.1:9092",
        "FLYMQ_BROKER_PORT": "tcp://10.0.0.1:9092",
        "FLYMQ_SERVICE_HOST": "x",
    }
    assert load_config(environ=environ) == Config()


# --- what is refused, and how ---


@pytest.mark.parametrize(
    ("name", "raw", "takes"),
    [
        ("listener.port", "many", "an integer from 0 to 65535, not 'many'"),
        ("listener.port", "65536", "an integer from 0 to 65535, not '65536'"),
        ("listener.port", "-1", "an integer from 0 to 65535, not '-1'"),
        ("listener.port", "", "an integer from 0 to 65535, not ''"),
        ("listener.port", 1.5, "an integer from 0 to 65535, not '1.5'"),
        ("listener.port", True, "an integer from 0 to 65535, not 'True'"),
        ("limits.fetch_wait_ms_max", "1s", "an integer (milliseconds), at least 0, not '1s'"),
        ("limits.buffer_bytes_max", 1 << 63, "an integer (bytes), at least 1048576, not '9223372036854775808'"),
        ("broker.dev", "perhaps", "true or false, not 'perhaps'"),
        ("broker.dev", 1, "true or false, not '1'"),
        ("broker.data_dir", "", "a path, not ''"),
        ("listener.host", 5, "text, not '5'"),
        ("listener.host", ["a"], "text, not"),
        ("tls.client_auth", "maybe", "'none', 'optional' or 'required', not 'maybe'"),
        ("tls.cert_file", "/no/such/file.pem", "the path of an existing file, not '/no/such/file.pem'"),
        ("topics.defaults.retention.ms", "-2", "an integer (milliseconds), at least -1, not '-2'"),
        ("topics.defaults.cleanup.policy", "burn", "'delete', 'compact', 'compact,delete' or '', not 'burn'"),
        ("auth.users", "alice", "a table of user names and password hashes"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_the_setting_and_what_it_takes(
    name: str, raw: object, takes: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load_config(flags={name: raw})
    assert caught.value.message.startswith(f"{name} takes {takes}")
    assert caught.value.message.endswith(" (from the command line)")


def test_a_wrong_value_is_traced_to_its_variable_or_file(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidSetting, match=r"listener\.port .* \(from the environment variable FLYMQ_LISTENER__PORT\)"
    ):
        load_config(environ={"FLYMQ_LISTENER__PORT": "x"})
    file = write(tmp_path, "[listener]\nport = 'x'")
    with pytest.raises(InvalidSetting, match=r"listener\.port .* \(from the file .*flymq\.toml\)"):
        load_config(file=file)


def test_a_wrong_value_that_a_later_source_replaces_is_not_looked_at(tmp_path: Path) -> None:
    file = write(tmp_path, "[listener]\nport = 'x'")
    assert load_config(file=file, flags={"listener.port": 1}).listener.port == 1


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("listener.prot", "listener.port"),
        ("listner.port", "listener.port"),
        ("limits.max_connections", "limits.connections_max"),
        ("topics.defaults.retention_ms", "topics.defaults.retention.ms"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_known_one(tmp_path: Path, name: str, meant: str) -> None:
    file = write(tmp_path, f"{name} = 1")
    with pytest.raises(InvalidSetting, match=rf"unknown setting {name} \(from the file .*flymq\.toml\)") as caught:
        load_config(file=file)
    assert caught.value.hint == f"Did you mean {meant}?"
    with pytest.raises(InvalidSetting, match=rf"unknown setting {name} \(from the command line\)"):
        load_config(flags={name: 1})


def test_a_name_like_no_other_is_answered_with_the_place_to_look() -> None:
    with pytest.raises(InvalidSetting) as caught:
        load_config(flags={"xyzzy": 1})
    assert caught.value.hint == "docs/reference/settings.md lists all settings."


@pytest.mark.parametrize("variable", ["FLYMQ_LISTENER_PORT", "FLYMQ_LISTENER__PROT", "FLYMQ__LISTENER__PORT"])
def test_a_misspelt_variable_is_answered_with_the_right_one(variable: str) -> None:
    with pytest.raises(InvalidSetting, match=f"unknown environment variable {variable}") as caught:
        load_config(environ={variable: "1"})
    assert caught.value.hint == "Did you mean FLYMQ_LISTENER__PORT?"


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"missing\.toml cannot be read: No such file"):
        load_config(file=tmp_path / "missing.toml")
    with pytest.raises(InvalidSetting, match=r"flymq\.toml is not TOML: .*line 1"):
        load_config(file=write(tmp_path, "port: 9092"))
    file = tmp_path / "flymq.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSetting, match=r"flymq\.toml is not TOML"):
        load_config(file=file)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tls.cert_file": __file__}, r"tls\.cert_file and tls\.key_file"),
        ({"tls.key_file": __file__}, r"tls\.cert_file and tls\.key_file"),
        ({"tls.client_auth": "required"}, r"tls\.client_auth is 'required', which needs tls\.ca_file"),
        ({"auth.required": True}, r"auth\.users is empty"),
        ({"cluster.etcd": "a:2379"}, r"cluster\.etcd is set, but broker\.id is not"),
        (
            {"cluster.etcd": "a:2379", "cluster.store": "s", "broker.id": 1},
            r"cluster\.etcd and cluster\.store are both",
        ),
        ({"cluster.etcd": "ftp://a", "broker.id": 1}, r"not the URL of an etcd member: 'ftp://a'"),
        ({"cluster.etcd": ",", "broker.id": 1}, r"cluster\.etcd has no URL"),
        ({"cluster.store": "s", "listener.host": "0.0.0.0"}, r"listener\.host is '0\.0\.0\.0', which other brokers"),
        ({"cluster.name": "a/b"}, r"cluster\.name takes letters, digits"),
        ({"cluster.etcd_cert_file": __file__}, r"cluster\.etcd_cert_file and cluster\.etcd_key_file"),
        ({"cluster.etcd_username": "flymq"}, r"cluster\.etcd_username and cluster\.etcd_password"),
        ({"topics.default_partitions": 1_001}, r"topics\.default_partitions is 1001, more than limits\.topic_part"),
        ({"limits.request_bytes_max": 2_000}, r"max\.message\.bytes is 1048576, more than limits\.request_bytes_max"),
        ({"limits.buffer_bytes_max": 1 << 20}, r"limits\.request_bytes_max is 67108864, more than limits\.buffer_byt"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(flags: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        load_config(flags=flags)


def test_a_broker_is_one_of_a_cluster_if_its_metadata_is_in_etcd_or_served_by_another_process() -> None:
    assert not Config().is_clustered
    assert load_config(flags={"cluster.etcd": "http://a:2379,http://b:2379", "broker.id": 0}).is_clustered
    assert load_config(flags={"cluster.store": "store.socket"}).is_clustered


@pytest.mark.parametrize(
    ("settings", "is_local_only"),
    [
        ({"cluster.etcd": "http://etcd-1:2379"}, True),
        ({"cluster.etcd": "http://etcd-1:2379", "listener.host": "10.0.0.1"}, False),
        ({"cluster.etcd": "http://etcd-1:2379", "listener.advertised_host": "mq-1"}, False),
        ({"cluster.etcd": "http://etcd-1:2379", "listener.advertised_host": "localhost"}, True),
        ({"cluster.etcd": "http://localhost:2379"}, False),
        ({}, False),
    ],
)
def test_a_loopback_address_is_noticed_in_a_cluster_of_several_machines(
    settings: dict[str, object], is_local_only: bool
) -> None:
    assert load_config(flags={"broker.id": 1, **settings}).is_local_only is is_local_only


# --- secrets ---


def test_the_password_of_etcd_is_never_shown() -> None:
    config = load_config(flags={"cluster.etcd_username": "flymq", "cluster.etcd_password": "hunter2"})
    assert config.cluster.etcd_password == "hunter2"
    assert "hunter2" not in repr(config)
    with pytest.raises(InvalidSetting, match=r"cluster\.etcd_password takes text") as caught:
        load_config(flags={"cluster.etcd_password": ["hunter2"]})
    assert "hunter2" not in str(caught.value)


def test_a_password_hash_is_never_shown() -> None:
    config = load_config(flags={"auth.users": {"alice": str(HASHED)}})
    assert config.auth.users == {"alice": HASHED}
    assert str(HASHED).rpartition("$")[2] not in repr(config)
    assert "alice" not in repr(config)


@pytest.mark.parametrize("users", [{"alice": "hunter2"}, {"alice": 12345}, {"alice": "$scrypt$ln=14,r=8,p=1$hunter2"}])
def test_a_wrong_password_hash_is_refused_by_its_user_and_not_repeated(users: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting, match=r"auth\.users\.alice") as caught:
        load_config(flags={"auth.users": users})
    assert "hunter2" not in str(caught.value)
    assert "12345" not in str(caught.value)
