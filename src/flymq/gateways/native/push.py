"""Push delivery: batches are read and sent while the client has credit."""

from __future__ import annotations

import asyncio

from flymq.broker.service.records import Fetched, MemorySlice, PendingFetch
from flymq.gateways.native.connection import NativeConnection
from flymq.gateways.native.records import fetched_partition, interleave
from flymq.model.errors import InvalidRequest
from flymq.model.names import TopicPartition
from flymq.record.reading import end_offset
from flymq.wire.native.fetch_frames import encode_around
from flymq.wire.native.messages import push as wire
from flymq.wire.native.messages.session import Done

PUSHES_MAX = 64
_WAIT_MS = 60_000


class Push:
    """Partitions that are pushed to one client. At most one fetch is in progress."""

    def __init__(self, connection: NativeConnection, request: wire.StartPush) -> None:
        self._connection = connection
        self._number = request.subscription
        self._credit = request.credit_bytes
        self._bytes_max = request.max_bytes
        self._reader = connection.service.members.reader(connection.caller, request.isolation)
        for part in request.partitions:
            self._reader.positions[TopicPartition(part.topic, part.partition)] = part.offset
        self._waiting: PendingFetch[Fetched] | None = None
        self._is_scheduled = False
        self._is_stopped = False

    def add_credit(self, count: int) -> None:
        self._credit += count
        self.schedule()

    def stop(self) -> None:
        self._is_stopped = True
        self._connection.pushes.pop(self._number, None)
        if self._waiting is not None:
            self._waiting.cancel()

    def schedule(self) -> None:
        """Continue in the next loop iteration, so that other connections are served."""
        if not self._is_scheduled and self._waiting is None and not self._is_stopped:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if self._is_stopped or self._credit <= 0 or not self._reader.positions:
            return
        if self._connection.is_draining:
            return  # whatever its credit is, the client does not read: the connection goes on when it does
        fetched = self._reader.fetch(bytes_max=min(self._bytes_max, self._credit), wait_ms=_WAIT_MS)
        if isinstance(fetched, Fetched):
            self._deliver(fetched)
        else:
            self._waiting = fetched
            fetched.add_done_callback(self._came)

    def _came(self, waiting: PendingFetch[Fetched]) -> None:
        self._waiting = None
        if not waiting.cancelled() and not self._is_stopped:
            self._deliver(waiting.result())

    def _deliver(self, fetched: Fetched) -> None:
        news = [read for read in fetched.reads if read.slice is not None or read.error is not None]
        for read in news:
            if read.error is not None:
                del self._reader.positions[read.name]
            elif read.slice is not None:
                # The headers of the batches are needed for the next offset, so they are read into memory.
                data = read.slice.read()
                following = end_offset(data)
                assert following is not None, "a slice holds whole batches"
                self._reader.moved(read.name, following)
                read.slice = MemorySlice(data, read.offsets)
        if news:
            self._credit -= sum(read.length for read in news)
            delivery = wire.Deliver(subscription=self._number, partitions=[fetched_partition(read) for read in news])
            self._connection.send(interleave(encode_around(delivery, [read.length for read in news]), news))
            self._connection.throttle(fetched.throttle_ms)
        if self._connection.service.records.may_wait:
            self.schedule()


def start_push(connection: NativeConnection, request: wire.StartPush) -> Done:
    if request.subscription in connection.pushes:
        raise InvalidRequest(f"push {request.subscription} already exists on this connection")
    if len(connection.pushes) >= PUSHES_MAX:
        raise InvalidRequest(f"a connection can have at most {PUSHES_MAX} pushes")
    for part in request.partitions:
        connection.service.records.check_readable(connection.caller, TopicPartition(part.topic, part.partition))
    push = connection.pushes[request.subscription] = Push(connection, request)
    push.schedule()
    return Done()


def credit(connection: NativeConnection, request: wire.Credit) -> None:
    push = connection.pushes.get(request.subscription)
    if push is not None:  # credit may arrive after the push was stopped
        push.add_credit(request.credit_bytes)


def stop_push(connection: NativeConnection, request: wire.StopPush) -> Done:
    push = connection.pushes.get(request.subscription)
    if push is None:
        raise InvalidRequest(f"there is no push {request.subscription} on this connection")
    push.stop()
    return Done()
