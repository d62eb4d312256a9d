"""The connections of a Spark process to the brokers: one per broker, shared by all tasks and kept between them.

Spark creates readers and writers for every query and every micro-batch, and pickles them; open connections are cached
here, by their settings. A worker process runs many tasks and exits without notice.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from flymq.client.aio.admin import AsyncAdmin
from flymq.client.aio.cluster import Cluster
from flymq.client.metrics import Counters
from flymq.client.settings import ConnectionConfig
from flymq.client.sync.loop import LoopThread

T = TypeVar("T")


class BrokerConnection:
    """Blocking calls to one cluster."""

    def __init__(self, config: ConnectionConfig, *, expects_broker: bool) -> None:
        self._loop = LoopThread.acquire()
        self.cluster = self._loop.call(lambda: Cluster(config, Counters(), expects_broker=expects_broker))
        self.admin = AsyncAdmin(self.cluster)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result of a coroutine."""
        return self._loop.run(work)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine without waiting for its result."""
        return self._loop.start(work)


_connections: dict[tuple[ConnectionConfig, bool], BrokerConnection] = {}


def connect(config: ConnectionConfig, *, expects_broker: bool = False) -> BrokerConnection:
    """Return this process's connection to a cluster.

    A task sets `expects_broker`: the query was just planned with the broker, so if it is unreachable it is restarting,
    and the task waits for it. The first planning of a query does not: a wrong address fails at once.
    """
    connection = _connections.get((config, expects_broker))
    if connection is None:
        connection = _connections[config, expects_broker] = BrokerConnection(config, expects_broker=expects_broker)
    return connection


os.register_at_fork(after_in_child=_connections.clear)
