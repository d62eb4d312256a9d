"""Check passwords: in threads of their own, a few at a time, in fair turns.

A check takes about 50 ms of a core on purpose. So the addresses take turns, each may have a limited number of logins
waiting, and a password that was right is remembered for a while, as a keyed digest that is useless outside this
process.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter, OrderedDict, deque

from flymq.broker.access.passwords import PasswordHash
from flymq.broker.access.throttle import LoginThrottle
from flymq.host.clock import Clock
from flymq.host.tasks import Threads
from flymq.model.errors import TooManyLogins

CHECKS_AT_ONCE = 2
WAITING_PER_ADDRESS_MAX = 256
REMEMBERED_MAX = 1_000
REMEMBERED_S = 300.0


class Turns:
    """A limited number of checks at once; the addresses that wait take turns."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def begin(self, address: str) -> None:
        if self._free:
            self._free -= 1
            return
        queue = self._waiting.setdefault(address, deque())
        if len(queue) >= WAITING_PER_ADDRESS_MAX:
            raise TooManyLogins(f"{len(queue)} logins from {address} are waiting already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(address, turn)
            else:
                self.end()  # it was given a turn just before
            raise

    def end(self) -> None:
        """Pass the turn on to the next address."""
        while self._waiting:
            address, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[address] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _forget(self, address: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(address)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[address]


class PasswordChecks:
    """The checks of a broker."""

    def __init__(self, threads: Threads, clock: Clock, secret: bytes) -> None:
        self._threads = threads
        self._clock = clock
        self._secret = secret
        self._turns = Turns(CHECKS_AT_ONCE)
        self._throttle = LoginThrottle()
        self._remembered: OrderedDict[bytes, float] = OrderedDict()
        self._running: set[asyncio.Future[bool]] = set()
        self.results: Counter[str] = Counter(succeeded=0, failed=0, refused=0)
        """Number of logins by result, since the start."""

    async def matches(self, expected: PasswordHash, username: str, password: str, address: str) -> bool:
        """Return whether this is the password. Raises TooManyLogins if the address has too many failures."""
        digest = hmac.digest(self._secret, f"{expected}\0{username}\0{password}".encode(), "sha256")
        try:
            matches = self._is_remembered(digest) or await self._check(digest, expected, username, password, address)
        except TooManyLogins:
            self.results["refused"] += 1
            raise
        self.results["succeeded" if matches else "failed"] += 1
        return matches

    def _is_remembered(self, digest: bytes) -> bool:
        return self._remembered.get(digest, 0.0) > self._clock.monotonic_s()

    async def _check(self, digest: bytes, expected: PasswordHash, username: str, password: str, address: str) -> bool:
        delay_s = self._throttle.delay_s(address, username, self._clock.monotonic_s())
        if delay_s:
            await asyncio.sleep(delay_s)
        await self._turns.begin(address)
        # A client that disconnects does not end its check: it has its turn until the thread is done.
        running = asyncio.ensure_future(self._in_turn(digest, expected, username, password, address))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    async def _in_turn(self, digest: bytes, expected: PasswordHash, username: str, password: str, address: str) -> bool:
        try:
            # Many clients of one application log in at the same time: one check is enough.
            matches = self._is_remembered(digest) or await self._threads.run(lambda: expected.matches(password))
        finally:
            self._turns.end()
        now_s = self._clock.monotonic_s()
        if matches:
            self._throttle.succeeded(address, username)
            self._remember(digest, now_s + REMEMBERED_S)
        else:
            self._throttle.failed(address, username, now_s)
        return matches

    def _remember(self, digest: bytes, until_s: float) -> None:
        self._remembered[digest] = until_s
        self._remembered.move_to_end(digest)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
