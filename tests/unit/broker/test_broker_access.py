"""A login tells nothing but yes or no."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import pytest

from flymq.broker.access.login import Access
from flymq.broker.access.passwords import hash_password

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


@pytest.mark.parametrize(
    ("username", "password", "expected", "logged"),
    [
        ("ada", "correct horse", True, []),
        ("ada", "wrong", False, ["a login from 10.0.0.7 failed: wrong password for 'ada'"]),
        ("correct horse", "ada", False, ["a login from 10.0.0.7 failed: there is no such user"]),
        ("", "", False, ["a login from 10.0.0.7 failed: there is no such user"]),
    ],
)
async def test_a_name_that_nobody_has_costs_as_much_as_a_wrong_password_and_is_not_logged(
    caplog: pytest.LogCaptureFixture, username: str, password: str, expected: bool, logged: list[str]
) -> None:
    threads = CountingThreads()
    access = Access(threads, is_required=True, users={"ada": hash_password("correct horse", salt=bytes(16))})
    with caplog.at_level(logging.DEBUG, "flymq"):
        assert await access.login(username, password, "10.0.0.7") is expected
    assert threads.works == 1
    assert caplog.messages == logged
