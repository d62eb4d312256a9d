"""A broker that asks for a login asks for it over HTTP too."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flymq.broker.access.passwords import SALT_BYTES, hash_password
from flymq.testing import running_broker


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    hashed = hash_password("correct horse", salt=bytes(SALT_BYTES))
    config: Path = tmp_path_factory.mktemp("config") / "flymq.toml"
    config.write_text(f'[auth]\nrequired = true\nplain_without_tls = true\n[auth.users]\nalice = "{hashed}"\n')
    with (
        running_broker(config_file=config) as broker,
        httpx.Client(base_url=f"http://127.0.0.1:{broker.port}", timeout=20) as client,
    ):
        yield client


@pytest.mark.parametrize("path", ["/api/v1/topics", "/metrics", "/metrics/detailed", "/api/v1/diagnosis"])
def test_nothing_is_told_without_a_login(guarded: httpx.Client, path: str) -> None:
    refused = guarded.get(path)
    assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHENTICATED")
    assert refused.headers["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.parametrize("login", [("alice", "wrong"), ("bob", "correct horse"), ("alice", "")])
def test_a_wrong_login_is_refused(guarded: httpx.Client, login: tuple[str, str]) -> None:
    assert guarded.get("/api/v1/topics", auth=login).json()["code"] == "AUTHENTICATION_FAILED"


def test_a_header_that_is_no_login_is_refused(guarded: httpx.Client) -> None:
    assert guarded.get("/api/v1/topics", headers={"Authorization": "Basic ???"}).status_code == 401
    assert guarded.get("/api/v1/topics", headers={"Authorization": "Bearer abc"}).status_code == 401


def test_the_right_login_is_let_in_again_and_again(guarded: httpx.Client) -> None:
    for _ in range(30):  # each check of the hash takes some 50 ms; a login that was right is remembered
        assert guarded.get("/api/v1/topics", auth=("alice", "correct horse")).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz", "/health", "/openapi.json", "/docs"])
def test_probes_need_no_login(guarded: httpx.Client, path: str) -> None:
    assert guarded.get(path).status_code == 200
