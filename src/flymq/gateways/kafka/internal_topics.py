"""Kafka's names of internal topics: its tools look for them, and know by them that the topics are internal.

To Kafka's clients `__offsets` is `__consumer_offsets`, in lists and when they ask for it: its partitions, offsets and
records. The records are entries of FlyMQ, which Kafka's formatters do not know. FlyMQ's own names are found, too.
"""

from __future__ import annotations

_OWN_NAMES = {"__consumer_offsets": "__offsets", "__transaction_state": "__transactions"}
_KAFKA_NAMES = {ours: kafkas for kafkas, ours in _OWN_NAMES.items()}


def own_name(name: str) -> str:
    """Return the name that the topic has here."""
    return _OWN_NAMES.get(name, name)


def kafka_name(name: str) -> str:
    """Return the name that the topic has in lists for Kafka's clients."""
    return _KAFKA_NAMES.get(name, name)
