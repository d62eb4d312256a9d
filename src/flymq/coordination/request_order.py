"""Which requests of a producer are late, when the producer epoch does not tell: Kafka clients without KIP-890.

    connection 1: EndTxn (transaction 7) ─────────── delayed on its way ───────────▶ arrives in transaction 8: late
    connection 2:   EndTxn (transaction 7, repeated) ──▶ answered, AddPartitionsToTxn (transaction 8) ──▶

The repeated request has the same bytes as the first one, and the same as the end of transaction 8. But a client repeats
a request only after it has given up the connection, and opens another one: so what arrives on a connection that is
older than one this producer has used since is late. Connections are numbered in the order in which they were accepted.
They do not outlive the broker, so nothing of this is stored. Clients may produce on another connection than the one
for the coordinator, so each has an order of its own.
"""

from __future__ import annotations

from flymq.model.errors import StaleConnection

NAMES_MAX = 100_000
"""The least recently used are forgotten: a broker that only leads partitions does not learn that an id is unused."""


class RequestOrder:
    """The newest connection of the current producer of each transactional id."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def check(self, name: str, connection: int) -> None:
        """Raise an error if the producer has used a newer connection before."""
        newest = self._newest.get(name, connection)
        if connection < newest:
            raise StaleConnection(f"the producer {name!r} has used a newer connection")
        self._newest.pop(name, None)
        self._newest[name] = connection  # the last one used is the last one
        if len(self._newest) > NAMES_MAX:
            del self._newest[next(iter(self._newest))]

    def forget(self, name: str) -> None:
        self._newest.pop(name, None)
