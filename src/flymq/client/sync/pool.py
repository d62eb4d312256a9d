"""A pool of clients for many threads, each with its own connections."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Unpack

from flymq.client.settings import ClientSettings
from flymq.client.sync.client import FlyMQClient
from flymq.model.errors import ClientClosed, InvalidSetting, RequestTimedOut


class FlyMQClientPool:
    """A pool of up to `size` clients, created on demand and reused."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | None = None,
        size: int = 10,
        **settings: Unpack[ClientSettings],
    ) -> None:
        if size < 1:
            raise InvalidSetting(f"`size` takes a number of at least 1, not {size}")
        self._servers = bootstrap_servers
        self._settings = settings
        self._size = size
        self._idle: list[FlyMQClient] = []
        self._count = 0
        self._changed = threading.Condition()
        self._is_closed = False

    @contextmanager
    def get_client(self, timeout_s: float | None = None) -> Iterator[FlyMQClient]:
        """Borrow a client for a `with` block; wait while all are in use."""
        client = self._take(timeout_s)
        try:
            yield client
        finally:
            self._give_back(client)

    def close(self) -> None:
        """Close idle clients now, and the others when they are returned."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for client in idle:
            client.close()

    def __enter__(self) -> FlyMQClientPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, timeout_s: float | None) -> FlyMQClient:
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_closed or self._idle or self._count < self._size, timeout_s):
                raise RequestTimedOut(f"all {self._size} clients of the pool were in use for {timeout_s} s")
            if self._is_closed:
                raise ClientClosed("the pool has been closed")
            if self._idle:
                return self._idle.pop()
            client = FlyMQClient(self._servers, **self._settings)
            self._count += 1
            return client

    def _give_back(self, client: FlyMQClient) -> None:
        with self._changed:
            if not self._is_closed:
                self._idle.append(client)
                self._changed.notify()
                return
        client.close()
