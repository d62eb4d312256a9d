"""The metadata store of another process on this machine.

There is one connection, opened when it is needed. When it is lost, reads are repeated, watches resume where they were,
sessions go on, and txns without a response are `IndeterminateResult`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TypeAlias

from flymq.host.clock import Clock
from flymq.host.entropy import Entropy
from flymq.host.failure_log import FailureLog
from flymq.host.host import Host
from flymq.host.tasks import Tasks
from flymq.metadata.attempts import Attempts, Lost, NotDone
from flymq.metadata.kept_session import KeptSession
from flymq.metadata.served.messages import (
    RESPONSE_BYTES_MAX,
    Changes,
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
    to_wire,
)
from flymq.metadata.store import Compare, EventBatch, KeyValue, Op, Snapshot, TxnResult, check_txn, only_reads
from flymq.model.errors import FlyMQError, MetadataError, MetadataUnavailable, all_errors

logger = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
_CLOSE_S_MAX = 2.0
_PAUSE_S = 0.2
_LEASE_BITS = 62
_UNREAD_BATCHES_MAX = 1000
"""A watch with more than these is ended, and opened again when they have been read."""


class ServedMetadataStore:
    """A `MetadataStore` that a `MetadataServer` serves."""

    def __init__(
        self,
        connect: Callable[[Callable[[], Connection]], Awaitable[Connection]],
        clock: Clock,
        entropy: Entropy,
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """`connect` opens a connection to the server, or raises OSError."""
        self._connect = connect
        self._clock = clock
        self._entropy = entropy
        self._attempts = Attempts(clock, entropy, timeout_s, "the process that serves the metadata")
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._sessions: set[KeptSession] = set()
        self._tasks = Tasks(self._task_failed)
        self._failures = FailureLog(logger, "the watch of %r is interrupted")
        self._is_closed = False

    @classmethod
    def at(cls, host: Host, path: Path) -> ServedMetadataStore:
        """Return the store that is served on the local socket `path`."""
        return cls(lambda new: host.network.connect_local(new, path), host.clock, host.entropy)

    async def txn(
        self, compares: Sequence[Compare] = (), success: Sequence[Op] = (), failure: Sequence[Op] = ()
    ) -> TxnResult:
        check_txn(compares, success, failure)
        request = TxnRequest(0, list(compares), to_wire(success), to_wire(failure))
        repeated = self._attempts.read if only_reads(success, failure) else self._attempts.write
        (done,) = await repeated(lambda deadline_s: self._ask(request, deadline_s))
        assert isinstance(done, TxnDone)
        return TxnResult(done.succeeded, done.revision, tuple(done.found))

    async def range(self, prefix: str) -> Snapshot:
        pages = await self._attempts.read(lambda deadline_s: self._ask(RangeRequest(0, prefix), deadline_s))
        found: list[KeyValue] = []
        revision = 0
        for page in pages:
            assert isinstance(page, Page)
            revision = page.revision
            found += page.key_values
        return Snapshot(revision, tuple(found))

    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        next_revision = from_revision
        while not self._is_closed:
            try:
                connection = await self._connected()
                subscription = connection.watch(prefix, next_revision)
                try:
                    self._failures.succeeded(prefix)
                    while (batch := await subscription.next()) is not None:
                        next_revision = batch.revision + 1
                        yield batch
                finally:
                    connection.unwatch(subscription)
            except MetadataUnavailable:  # this store is closed, or the served one: that process is about to end
                if not self._is_closed:
                    await asyncio.sleep(_PAUSE_S)
            except (NotDone, Lost) as error:
                if not self._is_closed:
                    self._failures.failed(prefix, MetadataUnavailable(str(error)))
                    await asyncio.sleep(_PAUSE_S)

    async def session(self, ttl_s: int) -> KeptSession:
        opened_s = self._clock.boottime_s()
        lease = self._entropy.getrandbits(_LEASE_BITS) + 1
        granted_s = await self._ask_ttl(OpenSession(0, lease, ttl_s))
        session = KeptSession(self._clock, lease, granted_s, opened_s, renew=self._renew, revoke=self._revoke)
        self._check_open()
        self._sessions.add(session)
        self._tasks.spawn(f"metadata session {lease:x}", self._keep(session))
        return session

    async def close(self) -> None:
        """End all sessions and watches, and close the connection."""
        if self._is_closed:
            return
        try:
            async with asyncio.timeout(_CLOSE_S_MAX):
                await asyncio.gather(*(session.close() for session in list(self._sessions)))
        except TimeoutError:
            logger.warning("metadata: the sessions have to expire: the process that serves the metadata is silent")
        self._is_closed = True
        if self._connection is not None:
            self._connection.abort()
        await self._tasks.close()

    # --- sessions

    async def _keep(self, session: KeptSession) -> None:
        try:
            await session.run()
        finally:
            self._sessions.discard(session)

    async def _renew(self, lease: int) -> float:
        return await self._ask_ttl(RenewSession(0, lease))

    async def _ask_ttl(self, request: OpenSession | RenewSession) -> float:
        (answer,) = await self._attempts.read(lambda deadline_s: self._ask(request, deadline_s))
        assert isinstance(answer, SessionOpen)
        return float(answer.ttl_s)

    async def _revoke(self, lease: int) -> None:
        await self._attempts.read(lambda deadline_s: self._ask(EndSession(0, lease), deadline_s))

    # --- the connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise MetadataUnavailable("the metadata store is closed")

    async def _ask(self, request: Request, deadline_s: float) -> list[Response]:
        """Make one attempt. A server that does not respond in time gets a new connection."""
        connection: Connection | None = None
        try:
            async with asyncio.timeout(max(0.0, deadline_s - self._clock.monotonic_s())):
                connection = await self._connected()
                return await connection.ask(request)
        except TimeoutError as error:
            if connection is None:
                raise NotDone("no connection in time") from error
            connection.abort()
            raise Lost("no response in time") from error

    async def _connected(self) -> Connection:
        """Return the open connection, or open one: those who wait at the same time share it."""
        while True:
            self._check_open()
            if self._connection is not None and self._connection.is_open:
                return self._connection
            if self._connecting is None:
                self._connecting = self._tasks.spawn("connect to the metadata server", self._open_connection())
            connecting = self._connecting
            try:
                await asyncio.shield(connecting)
            except OSError as error:
                raise NotDone(error.strerror or str(error)) from error
            except asyncio.CancelledError:
                if connecting.cancelled():  # by `close`, and not the caller
                    raise MetadataUnavailable("the metadata store is closed") from None
                raise

    async def _open_connection(self) -> None:
        try:
            self._connection = await self._connect(Connection)
        finally:
            self._connecting = None

    def _task_failed(self, name: str, error: BaseException) -> None:
        if not isinstance(error, OSError):  # whoever waits for the connection says so
            logger.error("the task %r failed", name, exc_info=error)


Receiver: TypeAlias = "Call | Subscription"


class Connection(asyncio.Protocol):
    """One connection to the server, with everything that waits for its responses."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._frames = Frames(RESPONSE_BYTES_MAX)
        self._receivers: dict[int, Receiver] = {}
        self._ids = count(1)
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._frames.receive(data)
        try:
            for response in self._frames.responses():
                if (receiver := self._receivers.get(response.id)) is not None:
                    receiver.receive(response)
        except MalformedMessage as error:
            logger.error("metadata: closed the connection: %s", error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        receivers, self._receivers = self._receivers, {}
        for receiver in receivers.values():
            receiver.lose(Lost("the connection was lost"))

    def abort(self) -> None:
        self.is_open = False
        self._transport.abort()

    async def ask(self, request: Request) -> list[Response]:
        """Send a request and return all its responses."""
        call = Call()
        self._send(request, call)
        try:
            return await call.result
        finally:
            self._receivers.pop(request.id, None)

    def watch(self, prefix: str, from_revision: int) -> Subscription:
        request = WatchRequest(0, prefix, from_revision)
        subscription = Subscription(self)
        self._send(request, subscription)
        subscription.id = request.id
        return subscription

    def unwatch(self, subscription: Subscription) -> None:
        if self._receivers.pop(subscription.id, None) is not None and self.is_open:
            self._transport.write(encode(Unwatch(subscription.id)))

    def _send(self, request: Request, receiver: Receiver) -> None:
        if not self.is_open:
            raise NotDone("the connection was lost")
        request.id = next(self._ids)
        self._receivers[request.id] = receiver
        self._transport.write(encode(request))


class Call:
    """A request that waits for its responses."""

    def __init__(self) -> None:
        self.result: asyncio.Future[list[Response]] = asyncio.get_running_loop().create_future()
        self._received: list[Response] = []

    def receive(self, response: Response) -> None:
        if self.result.done():
            return
        if isinstance(response, Failed):
            self.result.set_exception(_error_of(response))
            return
        self._received.append(response)
        if not isinstance(response, Page) or response.is_last:
            self.result.set_result(self._received)

    def lose(self, error: Lost) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class Subscription:
    """A watch at the server, and what has arrived from it and was not read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._batches: deque[EventBatch] = deque()
        self._error: Exception | None = None
        self._has_ended = False
        self._changed = asyncio.Event()
        self.id = 0

    async def next(self) -> EventBatch | None:
        """Return the next batch; None if the watch has to be opened again from there."""
        while not self._batches:
            if self._error is not None:
                raise self._error
            if self._has_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._batches.popleft()

    def receive(self, response: Response) -> None:
        if isinstance(response, Changes):
            self._batches.append(response.batch)
            if len(self._batches) >= _UNREAD_BATCHES_MAX:
                self._connection.unwatch(self)
                self._has_ended = True
        elif isinstance(response, Failed):
            self._error = _error_of(response)
        self._changed.set()

    def lose(self, error: Lost) -> None:
        self._error = self._error or error
        self._changed.set()


def _error_of(failed: Failed) -> FlyMQError:
    kind = all_errors().get(failed.code, MetadataError)
    return kind(failed.message)
