"""The memory budget of all connections, for requests that are being received and responses that are not yet sent.

A large request reserves its whole size before it is received. So what has begun can be finished: connections never wait
for memory that each of them holds in part. Small requests reserve nothing and never wait.

A reservation is granted if its owner then has no more than half of what would otherwise remain free. One owner alone
gets a third of the budget, each further one less, and there is always something left for the next. An owner is the user
that the connection has logged in as, or its address.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable


class BufferBudget:
    """A sum with a limit. No request is refused: one that does not fit waits."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._reserved: Counter[str] = Counter()
        """By owner."""
        self._waiting: dict[Share, tuple[int, Callable[[], None]]] = {}
        self.waits = 0
        """Number of reservations that had to wait, since the start."""

    @property
    def used(self) -> int:
        return self._used

    @property
    def used_ratio(self) -> float:
        return self._used / self._bytes_max

    @property
    def is_short(self) -> bool:
        """Whether somebody waits, or more is in use than allowed: whoever makes no progress must go."""
        return bool(self._waiting) or self._used > self._bytes_max

    def share(self, owner: str) -> Share:
        """Return an empty share, for one connection or one request."""
        return Share(self, owner)

    # --- called by the shares

    def _fits(self, owner: str, count: int) -> bool:
        if not self._reserved:
            return True  # whatever the limits are, one request at a time can be received
        return self._reserved[owner] + count <= (self._bytes_max - self._used) // 2

    def _change(self, by: int) -> None:
        self._used += by
        assert self._used >= 0, "more was released than was in use"
        if by < 0 and self._waiting:
            self._grant()

    def _reserve(self, owner: str, by: int) -> None:
        self._reserved[owner] += by
        if not self._reserved[owner]:
            del self._reserved[owner]
        self._change(by)

    def _wait(self, share: Share, count: int, granted: Callable[[], None]) -> None:
        self.waits += 1
        self._waiting[share] = (count, granted)

    def _grant(self) -> None:
        """Grant what fits now, in the order of arrival; one that does not fit does not block those behind it."""
        for share, (count, granted) in list(self._waiting.items()):
            if share in self._waiting and self._fits(share.owner, count):
                del self._waiting[share]
                share.take(count)
                granted()


class Share:
    """What one connection has of the budget."""

    __slots__ = ("_budget", "_held", "_reserved", "owner")

    def __init__(self, budget: BufferBudget, owner: str) -> None:
        self._budget = budget
        self._reserved = 0
        self._held = 0
        self.owner = owner

    @property
    def reserved(self) -> int:
        return self._reserved

    def belongs_to(self, owner: str) -> None:
        """Change the owner, when a user has logged in."""
        reserved = self._reserved
        self.release()
        self.owner = owner
        self.take(reserved)

    def reserve(self, count: int, granted: Callable[[], None]) -> bool:
        """Reserve memory for a request. If it does not fit, return False, and call `granted` once it was reserved."""
        assert not self._reserved, "one request at a time"
        if self._budget._fits(self.owner, count):
            self.take(count)
            return True
        self._budget._wait(self, count, granted)
        return False

    async def wait_for(self, count: int) -> None:
        """Reserve memory, however long it takes."""
        is_granted = asyncio.Event()
        if not self.reserve(count, is_granted.set):
            await is_granted.wait()

    def take(self, count: int) -> None:
        self._reserved += count
        if count:
            self._budget._reserve(self.owner, count)

    def release(self) -> None:
        """End the reservation, or the wait for it."""
        self._budget._waiting.pop(self, None)
        count, self._reserved = self._reserved, 0
        if count:
            self._budget._reserve(self.owner, -count)

    def set_held(self, count: int) -> None:
        """Set the memory that is in use without a reservation: unread responses, small buffers."""
        if count != self._held:
            change, self._held = count - self._held, count
            self._budget._change(change)
