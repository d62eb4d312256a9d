"""Tune the interpreter of a process that is a broker. Not in a process that also runs somebody else's code.

What is measured below: docs/decisions/0024.
"""

from __future__ import annotations

import gc
import sys

_SWITCH_INTERVAL_S = 0.0002
"""How long a thread in Python code keeps the interpreter's lock while the event loop waits for it. With the default,
5 ms, requests waited that long each time that the loop woke up while a thread was busy."""

_COLLECTOR_THRESHOLDS = 20_000, 5, 100
"""Requests leave next to no cycles behind, so the collector may look rarely (default: 700, 10, 10). It takes about
0.1 us for an object, so a collection of the first two generations, up to 100,000 objects, stays in the milliseconds."""

_FREEZE_MIN = 500
"""Partitions, some forty objects each: so few of them take a full collection no time worth mentioning."""


def tune_interpreter() -> None:
    """Prefer latency of the event loop to throughput of other threads, and collect garbage less often."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


def freeze_objects() -> None:
    """Take what lives now out of garbage collection: a full collection takes time for each object it looks at.

    A frozen object is still freed when its last reference goes. Only a cycle of frozen objects would stay, so garbage
    that is young enough to be found quickly is collected first.
    """
    gc.collect(0)
    gc.freeze()


class GrowingHeap:
    """Freezes again whenever the things that live for ever have become more by a quarter.

    Not more often: what is frozen includes connections of the moment, and each of them leaves a small cycle behind.
    """

    def __init__(self, count: int) -> None:
        self._frozen = count
        freeze_objects()

    def grown(self, count: int) -> None:
        """Note how many there are."""
        if count >= self._frozen + self._frozen // 4 + _FREEZE_MIN:
            self._frozen = count
            freeze_objects()
