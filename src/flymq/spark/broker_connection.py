"""The way to the brokers from a process of Spark: one connection to each broker for all its tasks, kept between them.

Spark makes readers and writers anew for every query and every micro-batch, and sends them around; what is open stays
here, by the settings it was opened with. A worker process lives for many tasks and ends without a word.
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
        """Begin with a coroutine and do something else meanwhile."""
        return self._loop.start(work)


_connections: dict[tuple[ConnectionConfig, bool], BrokerConnection] = {}


def connect(config: ConnectionConfig, *, expects_broker: bool = False) -> BrokerConnection:
    """Return this process's connection to a cluster.

    A task `expects_broker`: the query was planned with it a moment ago, so if it is not there it restarts, and the task
    waits for it. Whoever plans the first time is told at once that the address is wrong.
    """
    connection = _connections.get((config, expects_broker))
    if connection is None:
        connection = _connections[config, expects_broker] = BrokerConnection(config, expects_broker=expects_broker)
    return connection


os.register_at_fork(after_in_child=_connections.clear)
