"""Tune the interpreter of a process that is a broker. Not in a process that also runs somebody else's code.

What is measured below: docs/decisions/0024.
"""

from __future__ import annotations

import gc
import sys

_SWITCH_INTERVAL_S = 0.0002
"""How long a thread in Python code keeps the interpreter's lock while the event loop waits for it. With the default,
5 ms, requests waited that long each time that the loop woke up while a thread was busy."""

_COLLECTOR_THRESHOLDS = 50_000, 20, 100
"""Requests leave next to no cycles behind, so the collector may look rarely (default: 700, 10, 10). A step of it is
then still short, since only the youngest objects are in it."""


def tune_interpreter() -> None:
    """Prefer latency of the event loop to throughput of other threads, and collect garbage less often."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


def freeze_objects() -> None:
    """Take what lives now out of garbage collection: a full collection takes time for each object it looks at.

    A frozen object is still freed when its last reference goes. Only a cycle of frozen objects would stay, so garbage
    that is young enough to be found quickly is collected first.
    """
    gc.collect(1)
    gc.freeze()
