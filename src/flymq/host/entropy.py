"""Chance: identities and jitter. A simulation passes a seeded `random.Random`."""

from __future__ import annotations

import random
import uuid
from typing import Protocol


class Entropy(Protocol):
    def random(self) -> float:
        """A number from 0 up to, not with, 1."""

    def getrandbits(self, count: int, /) -> int: ...


def system_entropy() -> Entropy:
    return random.SystemRandom()


def new_id(entropy: Entropy) -> uuid.UUID:
    """A random identity, as topics and clusters carry it."""
    return uuid.UUID(int=entropy.getrandbits(128), version=4)
