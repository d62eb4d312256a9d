"""Kafka's names of its internal topics. Tools that look for them find those of FlyMQ.

Who asks for `__consumer_offsets` by name gets `__offsets`, under the name that was asked for: its partitions, settings,
offsets and records. The records are entries of FlyMQ, which Kafka's formatters do not know. A list of all topics has
each topic once, under its own name.
"""

from __future__ import annotations

_OWN_NAMES = {"__consumer_offsets": "__offsets", "__transaction_state": "__transactions"}


def own_name(name: str) -> str:
    """Return the name that the topic has here."""
    return _OWN_NAMES.get(name, name)
