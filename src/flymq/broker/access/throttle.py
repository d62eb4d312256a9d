"""Brakes for guessed passwords: delays, never a lockout.

Failures of an address, and of a user, are counted; the count decreases with time. Above a few, every login of the
address must wait for its turn, one a second, and a login of the user is delayed by a second. An address that has
recently logged in as the user is not delayed because of others. So guessing is slow, and whoever knows the password
still gets in.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from flymq.model.errors import TooManyLogins

K = TypeVar("K")

FREE_FAILURES = 10
FORGOTTEN_PER_S = 1.0
ADDRESS_INTERVAL_S = 1.0
"""Between two logins of an address with too many failures."""
ADDRESS_WAIT_S_MAX = 5.0
"""A login that would have to wait longer is refused."""
USER_DELAY_S = 1.0
TRACKED_MAX = 10_000


@dataclass(slots=True)
class _Failures:
    level: float = 0.0
    at_s: float = 0.0
    next_s: float = 0.0  # when the next login may begin

    def level_at(self, now_s: float) -> float:
        return max(0.0, self.level - (now_s - self.at_s) * FORGOTTEN_PER_S)


class LoginThrottle:
    """Failed logins by address and by user, in tables of limited size."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()
        self._by_user: OrderedDict[int, _Failures] = OrderedDict()  # by the hash of the name, which may be long
        self._trusted: OrderedDict[tuple[str, int], None] = OrderedDict()

    def delay_s(self, address: str, username: str, now_s: float) -> float:
        """Return how long this login must wait before its password is checked."""
        user = hash(username)
        delay_s = 0.0
        by_user = self._by_user.get(user)
        if by_user is not None and by_user.level_at(now_s) >= FREE_FAILURES and (address, user) not in self._trusted:
            delay_s = USER_DELAY_S
        by_address = self._by_address.get(address)
        if by_address is not None and by_address.level_at(now_s) >= FREE_FAILURES:
            begins_s = max(now_s, by_address.next_s)
            if begins_s - now_s > ADDRESS_WAIT_S_MAX:
                raise TooManyLogins(f"too many failed logins from {address}")
            by_address.next_s = begins_s + ADDRESS_INTERVAL_S
            delay_s = max(delay_s, begins_s - now_s)
        return delay_s

    def failed(self, address: str, username: str, now_s: float) -> None:
        _count(self._by_address, address, now_s)
        _count(self._by_user, hash(username), now_s)

    def succeeded(self, address: str, username: str) -> None:
        pair = (address, hash(username))
        self._trusted[pair] = None
        self._trusted.move_to_end(pair)
        if len(self._trusted) > TRACKED_MAX:
            self._trusted.popitem(last=False)


def _count(failures: OrderedDict[K, _Failures], key: K, now_s: float) -> None:
    one = failures.get(key)
    if one is None:
        one = failures[key] = _Failures()
    one.level, one.at_s = min(one.level_at(now_s) + 1, 2 * FREE_FAILURES), now_s
    failures.move_to_end(key)
    if len(failures) > TRACKED_MAX:
        failures.popitem(last=False)
