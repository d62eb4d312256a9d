"""A login tells nothing but yes or no."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import pytest

from flymq.broker.access.checking import PasswordChecks
from flymq.broker.access.login import PLAIN, Access, plain_message
from flymq.broker.access.passwords import hash_password
from flymq.host.clock import ManualClock
from flymq.model.errors import AuthenticationFailed, PlaintextLogin

T = TypeVar("T")


class CountingThreads:
    """Threads that know how often they had work: a password that is checked is one."""

    def __init__(self) -> None:
        self.works = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.works += 1
        return work()

    def close(self) -> None:
        pass


def checks_in(threads: CountingThreads) -> PasswordChecks:
    return PasswordChecks(threads, ManualClock(), b"secret")


@pytest.mark.parametrize(
    ("username", "password", "expected", "logged"),
    [
        ("ada", "correct horse", True, []),
        ("ada", "wrong", False, ["login from 10.0.0.7 failed: wrong password for 'ada'"]),
        ("correct horse", "ada", False, ["login from 10.0.0.7 failed: unknown user"]),
        ("", "", False, ["login from 10.0.0.7 failed: unknown user"]),
    ],
)
async def test_a_name_that_nobody_has_costs_as_much_as_a_wrong_password_and_is_not_logged(
    caplog: pytest.LogCaptureFixture, username: str, password: str, expected: bool, logged: list[str]
) -> None:
    threads = CountingThreads()
    access = Access(checks_in(threads), is_required=True, users={"ada": hash_password("correct horse", salt=bytes(16))})
    with caplog.at_level(logging.DEBUG, "flymq"):
        login = access.begin(PLAIN, "10.0.0.7", is_encrypted=True)
        if expected:
            assert (await login.step(plain_message(username, password))).principal == username
        else:
            with pytest.raises(AuthenticationFailed, match="unknown user or wrong password"):
                await login.step(plain_message(username, password))
    assert threads.works == 1
    assert caplog.messages == logged


async def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are() -> None:
    access = Access(checks_in(CountingThreads()), is_required=True)
    with pytest.raises(AuthenticationFailed, match="'GSSAPI' is not supported") as refused:
        access.begin("GSSAPI", "10.0.0.7")
    assert "PLAIN" in refused.value.hint


@pytest.mark.parametrize("message", [b"", b"ada", b"\0ada", b"\0ada\0pw\0more", b"\xff\0ada"])
async def test_a_plain_login_that_is_no_name_and_password_is_nobody(message: bytes) -> None:
    access = Access(checks_in(CountingThreads()), is_required=True, users={"ada": hash_password("", salt=bytes(16))})
    with pytest.raises(AuthenticationFailed):
        await access.begin(PLAIN, "10.0.0.7", is_encrypted=True).step(message)


@pytest.mark.parametrize(("authorization", "is_let_in"), [(b"", True), (b"ada", True), (b"admin", False)])
async def test_a_user_logs_in_as_itself_and_nobody_else(authorization: bytes, is_let_in: bool) -> None:
    access = Access(checks_in(CountingThreads()), is_required=True, users={"ada": hash_password("pw", salt=bytes(16))})
    login = access.begin(PLAIN, "10.0.0.7", is_encrypted=True)
    if is_let_in:
        assert (await login.step(authorization + b"\0ada\0pw")).principal == "ada"
    else:
        with pytest.raises(AuthenticationFailed, match="somebody else"):
            await login.step(authorization + b"\0ada\0pw")


@pytest.mark.parametrize("password", ["pw", "wrong"])
async def test_a_password_without_tls_is_refused_before_it_is_checked_unless_that_is_allowed(
    caplog: pytest.LogCaptureFixture, password: str
) -> None:
    threads = CountingThreads()
    users = {"ada": hash_password("pw", salt=bytes(16))}
    access = Access(checks_in(threads), is_required=True, users=users)
    with pytest.raises(PlaintextLogin, match=r"auth\.plain_without_tls") as refused:
        await access.begin(PLAIN, "10.0.0.7").step(plain_message("ada", password))
    assert "TLS" in refused.value.hint
    assert threads.works == 0
    assert caplog.messages == ["login from 10.0.0.7 refused: the connection has no TLS"]
    lenient = Access(checks_in(threads), is_required=True, users=users, plain_without_tls=True)
    assert (await lenient.begin(PLAIN, "10.0.0.7").step(plain_message("ada", "pw"))).principal == "ada"
