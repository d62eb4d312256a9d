"""`flymq server start` as a program, and commands that do not find a broker."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from tests.clients.cli.conftest import Flymq, StartFlymq

from flymq import __version__
from flymq.broker.access.passwords import hash_password
from flymq.cli.app import app
from flymq.cli.exit_codes import run
from flymq.client.sync.client import FlyMQClient
from flymq.testing import TestBroker, running_broker

NO_HTTP = ("--set", "listener.http_port=-1")
READY = re.compile(rf"FlyMQ {re.escape(__version__)} listens on (127\.0\.0\.1:\d+), data in (.+)\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_says_when_it_is_ready_and_ends_in_order(
    start_flymq: StartFlymq, tmp_path: Path, number: signal.Signals
) -> None:
    server = start_flymq("server", "start", "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert server.stdout is not None
    ready = READY.fullmatch(server.stdout.readline().decode())
    assert ready is not None
    assert ready[2] == str(tmp_path / "data")
    with FlyMQClient(ready[1]) as client:
        client.create_topic("kept", partitions=1)
        client.produce("kept", "still here")
    server.send_signal(number)
    out, err = server.communicate(timeout=30)
    assert (server.returncode, out) == (0, b"")
    assert b"Traceback" not in err


def test_dev_mode_tells_what_to_try_and_it_works(start_flymq: StartFlymq, tmp_path: Path) -> None:
    server = start_flymq("server", "start", "--dev", "--port", "0", "--data-dir", str(tmp_path))
    assert server.stdout is not None
    ready, produce, consume = (server.stdout.readline().decode() for _ in range(3))
    address = ready.split(" listens on ")[1].split(",")[0].replace("127.0.0.1", "localhost")
    assert f"--server {address} produce greetings 'hello, world'" in produce
    assert f"--server {address} consume greetings --follow" in consume
    written = start_flymq("--server", address, "produce", "greetings", "hello, world")
    assert written.wait(30) == 0
    follower = start_flymq("--server", address, "consume", "greetings", "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"hello, world\n"


def test_a_busy_port_is_named_with_what_to_do(start_flymq: StartFlymq, broker: TestBroker, tmp_path: Path) -> None:
    second = start_flymq("server", "start", "--port", str(broker.port), "--data-dir", str(tmp_path), *NO_HTTP)
    out, err = second.communicate(timeout=30)
    assert (second.returncode, out) == (1, b"")
    problem, hint = err.decode().splitlines()
    assert problem == f"flymq: port {broker.port} on 127.0.0.1 is in use"
    assert hint.startswith("Try: ")
    assert "--port" in hint


def test_a_codec_that_is_not_compiled_is_mentioned_once(broker: TestBroker, tmp_path: Path) -> None:
    hide = "import sys; sys.modules['flymq.record._fast'] = None; from flymq.cli import main; main()"
    start = ["server", "start", *NO_HTTP, "--data-dir", str(tmp_path)]
    start += ["--port", str(broker.port)]  # which is in use: it ends
    done = subprocess.run([sys.executable, "-c", hide, *start], capture_output=True, text=True)
    slow, advice, busy, _ = done.stderr.splitlines()
    assert "compiled record codec is missing" in slow
    assert advice.startswith("Try: Install a C compiler")
    assert "is in use" in busy


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--port", "99999"], "listener.port takes an integer from 0 to 65535"),
        (["--set", "listener.prot=1"], "unknown setting listener.prot"),
        (["--set", "listener"], "'listener' is not NAME=VALUE"),
        (["--config", "/no/such/file.toml"], "the config file /no/such/file.toml cannot be read"),
    ],
)
def test_wrong_settings_are_wrong_usage(flymq: Flymq, arguments: list[str], problem: str) -> None:
    refused = flymq("server", "start", *arguments)
    assert (refused.code, len(refused.err.splitlines())) == (2, 2)
    assert problem in refused.err


def test_flags_win_over_the_file(start_flymq: StartFlymq, tmp_path: Path) -> None:
    config = tmp_path / "flymq.toml"
    config.write_text('[listener]\nport = 1\nhost = "localhost"\n[log]\nformat = "json"\n')
    server = start_flymq(
        *("server", "start", "--config", str(config), "--data-dir", str(tmp_path / "data")),
        *("--host", "127.0.0.1", "--set", "listener.port=0"),
    )
    assert server.stdout is not None
    assert READY.fullmatch(server.stdout.readline().decode())


def test_no_broker_is_an_exit_code_of_its_own(flymq: Flymq) -> None:
    with socket.socket() as taken:  # bound but not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for command in (["topic", "list"], ["produce", "t", "x"], ["consume", "t"], ["group", "list"]):
            failed = flymq(*command, "--server", address)
            assert (failed.code, failed.out) == (3, b"")
            assert failed.err.startswith(f"flymq: no broker at {address}")
            assert "flymq server start --dev" in failed.err.splitlines()[1]


def test_the_environment_names_the_broker_and_an_option_wins_over_it(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYMQ_BOOTSTRAP", broker.address)
    assert run(app, ["topic", "list"]) == 0
    monkeypatch.setenv("FLYMQ_BOOTSTRAP", "localhost:1")
    assert run(app, ["topic", "list"]) == 3
    assert run(app, ["topic", "list", "--server", broker.address]) == 0
    assert run(app, ["--server", broker.address, "topic", "list"]) == 0
    assert run(app, ["--server", broker.address, "topic", "list", "--server", "localhost:1"]) == 3


def test_a_password_is_read_from_its_file_and_asked_of_nobody_in_a_pipe(flymq: Flymq, tmp_path: Path) -> None:
    assert flymq("topic", "list", "--user", "alice").code == 2
    (tmp_path / "password").write_text("wrong\n")
    refused = flymq("topic", "list", "--user", "alice", "--password-file", str(tmp_path / "password"))
    assert (refused.code, "accepts passwords only inside TLS" in refused.err) == (1, True)


def test_tls_and_a_login_are_a_matter_of_options(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    (tmp_path / "password").write_text("correct horse\n")
    settings = {
        "tls.cert_file": tmp_path / "cert.pem",
        "tls.key_file": tmp_path / "key.pem",
        "auth.required": True,
        "auth.users": {"alice": str(hash_password("correct horse", salt=b"0" * 16))},
    }
    with running_broker(settings=settings) as guarded:
        server = ["--server", guarded.address]
        tls = ["--ca-file", str(tmp_path / "ca.pem")]
        login = ["--user", "alice", "--password-file", str(tmp_path / "password")]
        assert run(app, ["topic", "list", *server, *tls, *login]) == 0
        assert run(app, ["topic", "list", *server, *tls]) == 1
        assert run(app, ["topic", "list", *server, "--tls", *login]) == 3
