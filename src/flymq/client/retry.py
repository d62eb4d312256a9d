"""How long to wait before the next try: longer each time, and never in step with others."""

from __future__ import annotations

from dataclasses import dataclass

from flymq.host.entropy import Entropy


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential, capped, with half of it random, so that clients that failed together do not return together."""

    first_ms: int
    max_ms: int

    def delay_s(self, attempt: int, entropy: Entropy) -> float:
        """Return the pause after the failed try number `attempt`, counted from 1."""
        assert attempt >= 1
        full_ms = min(self.first_ms << min(attempt - 1, 30), self.max_ms)
        return full_ms * (0.5 + 0.5 * entropy.random()) / 1000
