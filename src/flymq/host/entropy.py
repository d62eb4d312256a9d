"""Randomness: ids and jitter. A simulation passes a seeded `random.Random`."""

from __future__ import annotations

import random
import uuid
from typing import Protocol


class Entropy(Protocol):
    def random(self) -> float:
        """A number in [0, 1)."""

    def getrandbits(self, count: int, /) -> int: ...


def system_entropy() -> Entropy:
    return random.SystemRandom()


def new_id(entropy: Entropy) -> uuid.UUID:
    """A random id for topics, clusters and members."""
    return uuid.UUID(int=entropy.getrandbits(128), version=4)
