"""Serve the metadata store of this process to others, over a local socket.

One connection carries any number of requests and watches of a client. Peers are processes of the same user; what is
limited here is the harm that a broken one does: the size of a request, the number of requests at work (reading stops
above it), watches, sessions and connections. A watcher that does not read costs nothing: its watch waits, and may be
told later that it has missed something.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from flymq.host.clock import Clock
from flymq.host.host import Host
from flymq.host.network import Accepted, OpenPort
from flymq.host.tasks import Tasks
from flymq.metadata.served.leases import Leases
from flymq.metadata.served.messages import (
    REQUEST_BYTES_MAX,
    Changes,
    Done,
    EndSession,
    Failed,
    Frames,
    MalformedMessage,
    OpenSession,
    Page,
    RangeRequest,
    RenewSession,
    Request,
    Response,
    SessionOpen,
    TxnDone,
    TxnRequest,
    Unwatch,
    WatchRequest,
    encode,
    from_wire,
)
from flymq.metadata.store import Compare, MetadataStore, Op
from flymq.model.errors import FlyMQError, MetadataError, MetadataRefused, MetadataUnavailable

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 256
WATCHES_MAX = 64
"""Of one connection."""
REQUESTS_MAX = 128
"""At work for one connection; more are not read."""
_PAGE_KEYS = 1000
_BACKLOG = 128
_BEGIN_S_MAX = 10.0


class MetadataServer:
    """Serves a store until `close`. The store belongs to the caller, who closes it afterwards."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._tasks = Tasks(self._task_failed)
        self._leases = Leases(store, clock, self._tasks)
        self._connections: set[_Connection] = set()
        self._port: OpenPort | None = None

    @classmethod
    async def open(cls, host: Host, store: MetadataStore, path: Path) -> MetadataServer:
        """Serve the store on the local socket `path`."""
        server = cls(store, host.clock)
        server._port = await host.network.listen_local(path, _BACKLOG, server.accept)
        return server

    def accept(self, accepted: Accepted) -> None:
        """Serve one more connection."""
        if len(self._connections) >= CONNECTIONS_MAX:
            logger.warning("metadata: refused a connection: there are %d already", CONNECTIONS_MAX)
            accepted.close()
            return
        connection = _Connection(self._store, self._leases, self._tasks, self._connections.discard)
        self._connections.add(connection)
        self._tasks.spawn("begin metadata connection", self._begin(accepted, connection))

    async def _begin(self, accepted: Accepted, connection: _Connection) -> None:
        try:
            await accepted.begin(connection, tls=None, within_s=_BEGIN_S_MAX)
        except OSError:
            self._connections.discard(connection)

    async def close(self) -> None:
        if self._port is not None:
            self._port.close()
        for connection in list(self._connections):
            connection.abort()
        self._leases.close()
        await self._tasks.close()

    def _task_failed(self, name: str, error: BaseException) -> None:
        logger.error("the task %r failed", name, exc_info=error)


class _Connection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(
        self, store: MetadataStore, leases: Leases, tasks: Tasks, on_lost: Callable[[_Connection], None]
    ) -> None:
        self._store = store
        self._leases = leases
        self._tasks = tasks
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._frames = Frames(REQUEST_BYTES_MAX)
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._requests = 0
        self._can_write = asyncio.Event()
        self._can_write.set()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._frames.receive(data)
        try:
            for request in self._frames.requests():
                self._serve(request)
        except MalformedMessage as error:
            logger.warning("metadata: closed the connection of a client: %s", error)
            self.abort()

    def pause_writing(self) -> None:
        self._can_write.clear()
        self._read_or_pause()

    def resume_writing(self) -> None:
        self._can_write.set()
        self._read_or_pause()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost(self)
        for watch in self._watches.values():
            watch.cancel()
        # Other requests go on: they have been received, and what they change is done.

    # --- requests

    def _serve(self, request: Request) -> None:
        match request:
            case RenewSession(id, lease):
                self._renew(id, lease)
            case WatchRequest(id):
                self._begin_watch(request)
            case Unwatch(id):
                if (watch := self._watches.get(id)) is not None:
                    watch.cancel()
            case TxnRequest(id):
                success, failure = from_wire(request.success), from_wire(request.failure)
                self._begin(id, self._txn(id, request.compares, success, failure))
            case RangeRequest(id, prefix):
                self._begin(id, self._range(id, prefix))
            case OpenSession(id, lease, ttl_s):
                self._begin(id, self._open_session(id, lease, ttl_s))
            case EndSession(id, lease):
                self._begin(id, self._end_session(id, lease))

    def _renew(self, id: int, lease: int) -> None:
        try:
            self._send(SessionOpen(id, self._leases.renew(lease)))
        except MetadataError as error:
            self._fail(id, error)

    def _begin(self, id: int, work: Coroutine[Any, Any, None]) -> None:
        self._requests += 1
        self._read_or_pause()
        self._tasks.spawn("metadata request", self._finish(id, work))

    async def _finish(self, id: int, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except FlyMQError as error:
            self._fail(id, error)
        except BaseException:
            self.abort()  # the client must not wait for a response that never comes
            raise
        finally:
            self._requests -= 1
            self._read_or_pause()

    def _read_or_pause(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._requests < REQUESTS_MAX and self._can_write.is_set():
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    async def _txn(self, id: int, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> None:
        translate = self._leases.with_leases_of_store
        succeeded, revision, found = await self._store.txn(compares, translate(success), translate(failure))
        self._send(TxnDone(id, succeeded, revision, list(found)))

    async def _range(self, id: int, prefix: str) -> None:
        revision, found = await self._store.range(prefix)
        for start in range(0, max(1, len(found)), _PAGE_KEYS):
            page = list(found[start : start + _PAGE_KEYS])
            self._send(Page(id, revision, page, is_last=start + _PAGE_KEYS >= len(found)))
            await asyncio.sleep(0)
            await self._can_write.wait()

    async def _open_session(self, id: int, lease: int, ttl_s: int) -> None:
        self._send(SessionOpen(id, await self._leases.open(lease, ttl_s)))

    async def _end_session(self, id: int, lease: int) -> None:
        await self._leases.end(lease)
        self._send(Done(id))

    # --- watches

    def _begin_watch(self, request: WatchRequest) -> None:
        if len(self._watches) >= WATCHES_MAX or request.id in self._watches:
            self._fail(request.id, MetadataRefused(f"this connection has {len(self._watches)} watches already"))
            return
        task = self._tasks.spawn("metadata watch", self._watch(request))
        self._watches[request.id] = task
        task.add_done_callback(lambda _: self._watches.pop(request.id, None))

    async def _watch(self, request: WatchRequest) -> None:
        try:
            async for batch in self._store.watch(request.prefix, from_revision=request.from_revision):
                self._send(Changes(request.id, batch))
                await self._can_write.wait()
            self._fail(request.id, MetadataUnavailable("the metadata store is closed"))
        except FlyMQError as error:
            self._fail(request.id, error)

    # --- responses

    def _send(self, response: Response) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(response))

    def _fail(self, id: int, error: FlyMQError) -> None:
        self._send(Failed(id, error.code, error.message))
