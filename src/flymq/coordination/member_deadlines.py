"""The deadlines of members that send heartbeats: of consumer groups and of streams groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Timed(Protocol):
    """A member."""

    deadline_s: float | None
    """The end of its session, unless it sends a heartbeat."""
    revoke_until_s: float | None
    """The end of its rebalance timeout, unless it confirms the revocation."""


def find_overdue(members: Mapping[str, Timed], now_s: float) -> list[str]:
    """Return the members that timed out: no heartbeat in a session, or no revocation in the rebalance timeout."""
    return [
        name
        for name, member in members.items()
        if any(at_s is not None and at_s <= now_s for at_s in (member.deadline_s, member.revoke_until_s))
    ]


def find_next_deadline_s(members: Mapping[str, Timed]) -> float | None:
    """Return the next deadline of any of them; None: there is none."""
    times = [at_s for member in members.values() for at_s in (member.deadline_s, member.revoke_until_s)]
    return min((at_s for at_s in times if at_s is not None), default=None)
