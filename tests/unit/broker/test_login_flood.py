"""Guessing passwords is slow, delays only those who guess, and locks nobody out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from flymq.broker.access.checking import CHECKS_AT_ONCE, REMEMBERED_S, WAITING_PER_ADDRESS_MAX, PasswordChecks
from flymq.broker.access.passwords import PasswordHash
from flymq.broker.access.throttle import FREE_FAILURES, TRACKED_MAX, LoginThrottle
from flymq.host.virtual_time import LoopClock, run
from flymq.model.errors import TooManyLogins

T = TypeVar("T")
CHECK_S = 0.05


class Hash(PasswordHash):
    """A hash that is cheap to check; the threads below take the time."""

    def matches(self, password: str) -> bool:
        return password == "right"


class Threads:
    """Threads that need the time of a check, and count."""

    def __init__(self) -> None:
        self.works = self.at_once = self.at_once_max = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.works += 1
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await asyncio.sleep(CHECK_S)
        self.at_once -= 1
        return work()

    def close(self) -> None:
        pass


class Site:
    def __init__(self) -> None:
        self.threads = Threads()
        self.checks = PasswordChecks(self.threads, LoopClock(asyncio.get_running_loop()), b"secret")
        self.hash = Hash(log_n=1, r=1, p=1, salt=b"", digest=b"")

    async def log_in(self, password: str = "right", address: str = "10.0.0.1", user: str = "ada") -> str:
        try:
            return str(await self.checks.matches(self.hash, user, password, address))
        except TooManyLogins:
            return "refused"


def test_in_a_flood_of_guesses_a_client_at_another_address_waits_for_a_few_checks_only() -> None:
    async def scenario() -> None:
        site = Site()
        flood = [asyncio.ensure_future(site.log_in(f"guess {n}")) for n in range(8000)]
        await asyncio.sleep(0)
        before_s = asyncio.get_running_loop().time()
        assert await site.log_in(address="10.0.0.2") == "True"
        assert asyncio.get_running_loop().time() - before_s <= 3 * CHECK_S
        results = await asyncio.gather(*flood)
        assert results.count("refused") == 8000 - WAITING_PER_ADDRESS_MAX - CHECKS_AT_ONCE
        assert site.threads.at_once_max == CHECKS_AT_ONCE
        assert site.checks.results == {"succeeded": 1, "failed": 258, "refused": 8000 - 258}

    run(scenario())


def test_an_address_that_has_guessed_often_has_one_check_a_second() -> None:
    async def scenario() -> None:
        site = Site()
        for number in range(FREE_FAILURES + 2):
            await site.log_in(f"guess {number}")
        before_s = asyncio.get_running_loop().time()
        results = [await site.log_in(f"another {number}") for number in range(10)]
        assert results == ["False"] * 10
        assert asyncio.get_running_loop().time() - before_s > 8

        many = await asyncio.gather(*[site.log_in(f"at once {number}") for number in range(100)])
        assert many.count("False") <= 7  # five seconds of waiting, and the rest is refused
        await asyncio.sleep(30)
        assert await site.log_in() == "True"  # nothing lasts

    run(scenario())


def test_a_user_whose_password_is_guessed_from_everywhere_still_logs_in() -> None:
    async def scenario() -> None:
        site = Site()
        assert await site.log_in(address="home") == "True"
        for number in range(50):
            await site.log_in("guess", address=f"10.0.0.{number}")
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        site.checks._remembered.clear()
        assert await site.log_in(address="home") == "True"
        assert loop.time() - before_s <= CHECK_S + 0.001  # as always: this address knows the password
        site.checks._remembered.clear()
        before_s = loop.time()
        assert await site.log_in(address="elsewhere") == "True"
        assert loop.time() - before_s <= 1 + CHECK_S + 0.001

    run(scenario())


def test_a_password_that_was_right_is_not_checked_again_for_a_while() -> None:
    async def scenario() -> None:
        site = Site()
        assert await asyncio.gather(*[site.log_in() for _ in range(200)]) == ["True"] * 200
        assert site.threads.works <= CHECKS_AT_ONCE
        before = site.threads.works
        await asyncio.sleep(REMEMBERED_S - 1)
        assert await site.log_in() == "True"
        assert await site.log_in(user="eve") == "True"  # another user with the same password: checked
        assert site.threads.works == before + 1
        await asyncio.sleep(2)
        await site.log_in()
        assert site.threads.works == before + 2

    run(scenario())


def test_a_wrong_password_is_never_remembered() -> None:
    async def scenario() -> None:
        site = Site()
        for _ in range(3):
            assert await site.log_in("wrong") == "False"
        assert site.threads.works == 3

    run(scenario())


def test_clients_that_disconnect_leave_neither_their_places_nor_more_checks_behind() -> None:
    async def scenario() -> None:
        site = Site()
        for _ in range(100):
            waiting = [asyncio.ensure_future(site.log_in(f"guess {n}")) for n in range(20)]
            await asyncio.sleep(0)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert site.threads.works == CHECKS_AT_ONCE
        assert await site.log_in() == "True"
        assert site.threads.at_once_max == CHECKS_AT_ONCE

    run(scenario())


def test_the_tables_of_failures_have_a_limited_size() -> None:
    throttle = LoginThrottle()
    for number in range(TRACKED_MAX + 100):
        throttle.failed(f"address {number}", f"user {number}", now_s=float(number))
        throttle.succeeded(f"address {number}", "ada")
    assert len(throttle._by_address) == len(throttle._by_user) == len(throttle._trusted) == TRACKED_MAX


def test_an_address_without_failures_is_not_delayed() -> None:
    throttle = LoginThrottle()
    for _ in range(FREE_FAILURES):
        throttle.failed("bad", "eve", now_s=0)
    assert throttle.delay_s("good", "ada", now_s=0) == 0
    with pytest.raises(TooManyLogins):
        for _ in range(100):
            throttle.delay_s("bad", "ada", now_s=0)
