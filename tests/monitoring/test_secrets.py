"""Passwords are told to nobody: not in logs, metrics, answers, reports or the arguments of processes."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pika
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from pika.exceptions import AMQPError

from flymq import FlyMQClient
from flymq.broker.access.passwords import hash_password
from flymq.errors import AuthenticationFailed
from flymq.wire.native.codec import encode_request
from flymq.wire.native.messages.session import Authenticate

RIGHT, WRONG = "correct-horse-battery", "wrong-horse-battery"
USER = "ada"
FORMATS = ("people", "json")
COMMAND = [sys.executable, "-m", "flymq"]


@dataclass
class Broker:
    """A broker that asks for a login, as a program of its own that tells all it can."""

    process: subprocess.Popen[str]
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def stop(self) -> str:
        """Return what it has told."""
        self.process.terminate()
        out, err = self.process.communicate(timeout=30)
        return out + err


def start(tmp_path: Path, log_format: str) -> Broker:
    config = tmp_path / "broker.toml"
    config.write_text(
        f"""
[broker]
data_dir = "{tmp_path / "data"}"
dev = true
[listener]
port = 0
http_port = -1
[log]
level = "debug"
format = "{log_format}"
[auth]
required = true
plain_without_tls = true
[auth.users]
{USER} = "{hash_password(RIGHT, salt=bytes(16))}"
"""
    )
    command = [*COMMAND, "server", "start", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"127\.0\.0\.1:(\d+)", line):
            return Broker(process, int(found[1]))
    raise AssertionError(process.stderr.read() if process.stderr else "")


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Broker]:
    running = start(tmp_path, request.param)
    yield running
    running.process.kill()
    running.process.communicate()


# --- a login with a password, by each protocol ----------------------------------------------------------------------


def over_native(broker: Broker, password: str) -> bool:
    try:
        with FlyMQClient(broker.address, username=USER, password=password) as client:
            client.produce("orders", b"tea")
    except AuthenticationFailed:
        return False
    return True


def over_kafka(broker: Broker, password: str) -> bool:
    failures: list[KafkaError] = []
    admin = AdminClient(
        {
            "bootstrap.servers": broker.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": password,
            "log_level": 0,
            "error_cb": failures.append,
        }
    )
    if password == RIGHT:
        return bool(admin.list_topics(timeout=20).brokers)
    while not any(failure.code() == KafkaError._AUTHENTICATION for failure in failures):
        admin.poll(0.1)
    return False


def over_http(broker: Broker, password: str) -> bool:
    answer = httpx.get(f"{broker.url}/api/v1/topics", auth=(USER, password))
    assert answer.status_code in (200, 401)
    return answer.status_code == 200


def over_amqp(broker: Broker, password: str) -> bool:
    credentials = pika.PlainCredentials(USER, password)
    try:
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials)).close()
    except AMQPError:
        return False
    return True


def over_mqtt(broker: Broker, password: str) -> bool:
    """CONNECT of MQTT 3.1.1 with a name and a password; CONNACK is accepted or refused."""

    def text(value: str) -> bytes:
        return len(value).to_bytes(2, "big") + value.encode()

    body = text("MQTT") + bytes([4, 0xC2, 0, 60]) + text("secrets") + text(USER) + text(password)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as client:
        client.sendall(bytes([0x10, len(body)]) + body)
        answer = client.recv(4)
    return answer[3:] == b"\0"


LOGINS: dict[str, Callable[[Broker, str], bool]] = {
    "native": over_native,
    "kafka": over_kafka,
    "http": over_http,
    "amqp": over_amqp,
    "mqtt": over_mqtt,
}


def send_raw(broker: Broker, data: bytes) -> None:
    """Send something broken, and wait until the broker is done with it."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as client:
        client.sendall(data)
        with suppress(ConnectionError):  # the broker may hang up at once
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass


def break_things(broker: Broker) -> None:
    """Send passwords where they do not belong, and where something goes wrong with them."""
    secret = RIGHT.encode()
    send_raw(broker, bytes(encode_request(Authenticate(mechanism="SCRAM", username=USER, password=RIGHT))))
    send_raw(broker, bytes(encode_request(Authenticate(username=USER, password=RIGHT)))[:-3])
    send_raw(broker, b"GET /api/v1/topics HTTP/1.1\r\nAuthorization: Basic not base64 " + secret + b"\r\n\r\n")
    send_raw(broker, b"GET / HTTP/1.1\r\nAuthorization: Bearer " + secret + b"\r\nbroken header\r\n\r\n")
    send_raw(broker, b"no protocol at all: " + secret)
    sasl = b"\0" + USER.encode() + b"\0" + secret
    head = (36).to_bytes(2, "big") + (0).to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\xff\xff"
    body = head + len(sasl).to_bytes(4, "big") + sasl
    send_raw(broker, len(body).to_bytes(4, "big") + body)  # SaslAuthenticate before its handshake
    send_raw(broker, (len(body) - 5).to_bytes(4, "big") + body[:-5])  # and cut off
    with pytest.raises(httpx.TransportError):
        tls = ssl.create_default_context()
        httpx.get(f"https://{broker.address}/", auth=(USER, RIGHT), verify=tls)
    for document in ({"records": [{"value": RIGHT, "partition": "x"}]}, {RIGHT: 1}):
        answer = httpx.post(f"{broker.url}/api/v1/topics/orders/records", json=document, auth=(USER, WRONG))
        assert answer.status_code == 401


def forms(secret: str) -> list[str]:
    """Return the secret as it may appear."""
    return [
        secret,
        b64encode(secret.encode()).decode().rstrip("="),
        b64encode(f"{USER}:{secret}".encode()).decode().rstrip("="),
        b64encode(f"\0{USER}\0{secret}".encode()).decode().rstrip("="),
        secret.encode().hex(),
    ]


def pages(broker: Broker) -> Iterator[tuple[str, str]]:
    """Everything that can be read over HTTP without a name to fill in, and what goes wrong there."""
    described = httpx.get(f"{broker.url}/openapi.json").json()["paths"]
    with httpx.Client(base_url=broker.url, auth=(USER, RIGHT)) as http:
        for path, methods in described.items():
            if "get" in methods and "stream" not in path:
                filled = re.sub(r"{\w+}", lambda name: {"{topic}": "orders", "{broker}": "0"}.get(name[0], "0"), path)
                yield path, http.get(filled).text
    yield "a refusal", httpx.get(f"{broker.url}/api/v1/topics", auth=(USER, WRONG)).text


@pytest.mark.parametrize("broker", FORMATS, indirect=True)
def test_no_password_is_told_to_anybody(broker: Broker, tmp_path: Path) -> None:
    page = httpx.get(f"{broker.url}/metrics", auth=(USER, RIGHT)).text
    served = set(re.findall(r'^flymq_connections_accepted_total{protocol="(\w+)"}', page, re.MULTILINE))
    assert served <= LOGINS.keys(), "a protocol whose login nobody looks at"
    for protocol in sorted(served):
        assert LOGINS[protocol](broker, RIGHT), protocol
        assert not LOGINS[protocol](broker, WRONG), protocol
    break_things(broker)

    told = dict(pages(broker))
    file = tmp_path / "password"
    file.write_text(RIGHT)
    told["the broker's arguments"] = Path(f"/proc/{broker.process.pid}/cmdline").read_text()
    for level in ([], ["--json"]):
        report = subprocess.run(
            [*COMMAND, "doctor", "--server", broker.address, "--user", USER, "--password-file", str(file), *level],
            capture_output=True,
            text=True,
            timeout=60,
        )
        told[f"flymq doctor {level}"] = report.stdout + report.stderr
    told["the log"] = log = broker.stop()

    assert "stopping" in log, "the log was not looked at"
    assert log.count("failed: wrong password for 'ada'") >= len(served), "who guesses passwords is seen"
    for where, text in told.items():
        assert text, where
        for secret in (RIGHT, WRONG):
            assert [form for form in forms(secret) if form in text] == [], where


@pytest.mark.parametrize("broker", ["json"], indirect=True)
def test_every_line_of_a_log_in_json_is_json(broker: Broker) -> None:
    break_things(broker)
    lines = [line for line in broker.stop().splitlines() if line.startswith("{") or "Error" in line]
    assert len(lines) >= 3
    for line in lines:
        assert {"time", "level", "logger", "message"} <= json.loads(line).keys()


def test_a_password_that_was_given_in_place_of_its_hash_is_not_repeated(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(f'[auth]\nrequired = true\n[auth.users]\n{USER} = "{RIGHT}"\n')
    done = subprocess.run([*COMMAND, "server", "start", "--config", str(config)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "auth.users.ada" in done.stderr
    assert RIGHT not in done.stdout + done.stderr


def test_settings_and_requests_that_are_printed_hide_their_password() -> None:
    from flymq.client.settings import ConnectionConfig

    assert RIGHT not in repr(ConnectionConfig(username=USER, password=RIGHT))
    assert RIGHT not in repr(Authenticate(username=USER, password=RIGHT))
