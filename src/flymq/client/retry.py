"""Exponential backoff with jitter: how long to wait before the next retry."""

from __future__ import annotations

from dataclasses import dataclass

from flymq.host.entropy import Entropy


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential, capped, half of it random, so that clients that failed together do not retry together."""

    first_ms: int
    max_ms: int

    def delay_s(self, attempt: int, entropy: Entropy) -> float:
        """Return the delay after failed attempt number `attempt`, counted from 1."""
        assert attempt >= 1
        full_ms = min(self.first_ms << min(attempt - 1, 30), self.max_ms)
        return full_ms * (0.5 + 0.5 * entropy.random()) / 1000
