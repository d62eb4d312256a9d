"""Deliveries without asking: a subscription fetches for the client as long as the client's credit lasts."""

from __future__ import annotations

import asyncio

from flymq.broker.replicas.fetching import FetchFrom, FetchQuery, WaitingFetch
from flymq.broker.replicas.partition import PartitionRead
from flymq.gateways.native.connection import NativeConnection
from flymq.gateways.native.records import fetched, interleave
from flymq.model.errors import InvalidRequest
from flymq.model.names import TopicPartition
from flymq.record.reading import end_offset
from flymq.storage.memory_log import MemorySlice
from flymq.wire.native.fetch_frames import encode_around
from flymq.wire.native.messages import push as wire
from flymq.wire.native.messages.session import Done

SUBSCRIPTIONS_MAX = 64
_WAIT_MS = 60_000


class Subscription:
    """Partitions that are pushed to one client. It never has more than one fetch under way."""

    def __init__(self, connection: NativeConnection, request: wire.StartPush) -> None:
        self._connection = connection
        self._number = request.subscription
        self._credit = request.credit_bytes
        self._bytes_max = request.max_bytes
        self._isolation = request.isolation
        self._offsets = {TopicPartition(part.topic, part.partition): part.offset for part in request.partitions}
        self._waiting: WaitingFetch | None = None
        self._is_scheduled = False
        self._is_stopped = False

    def add_credit(self, count: int) -> None:
        self._credit += count
        self.schedule()

    def stop(self) -> None:
        self._is_stopped = True
        self._connection.subscriptions.pop(self._number, None)
        if self._waiting is not None:
            self._waiting.cancel()

    def schedule(self) -> None:
        """Go on in the next turn of the loop, so that other connections have theirs."""
        if not self._is_scheduled and self._waiting is None and not self._is_stopped:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if self._is_stopped or self._credit <= 0 or not self._offsets:
            return
        query = FetchQuery(
            [FetchFrom(name, offset, self._bytes_max) for name, offset in self._offsets.items()],
            bytes_max=min(self._bytes_max, self._credit),
            wait_ms_max=_WAIT_MS,
            isolation=self._isolation,
        )
        reads = self._connection.broker.topics.fetch(query)
        if isinstance(reads, WaitingFetch):
            self._waiting = reads
            reads.add_done_callback(self._came)
        else:
            self._deliver(reads)

    def _came(self, waiting: WaitingFetch) -> None:
        self._waiting = None
        if not waiting.cancelled() and not self._is_stopped:
            self._deliver(waiting.result())

    def _deliver(self, reads: list[PartitionRead]) -> None:
        telling = [read for read in reads if read.slice is not None or read.error is not None]
        for read in telling:
            if read.error is not None:
                del self._offsets[read.name]
            elif read.slice is not None:
                # The batches' headers say where the next read begins, so they pass through memory here.
                data = read.slice.read()
                following = end_offset(data)
                assert following is not None
                self._offsets[read.name] = following
                self._connection.broker.traffic.read(
                    self._connection.protocol, read.name.topic, read.offsets, read.length
                )
                read.slice = MemorySlice(data, read.offsets)
        if telling:
            size = sum(read.length for read in telling)
            self._credit -= size
            delivery = wire.Deliver(subscription=self._number, partitions=[fetched(read) for read in telling])
            frame = interleave(encode_around(delivery, [read.length for read in telling]), telling)
            self._connection.send(frame)
            shared = self._connection.shared
            self._connection.charge(shared.fetch_quota, size)
        self.schedule()


def start_push(connection: NativeConnection, request: wire.StartPush) -> Done:
    if request.subscription in connection.subscriptions:
        raise InvalidRequest(f"subscription {request.subscription} exists on this connection")
    if len(connection.subscriptions) >= SUBSCRIPTIONS_MAX:
        raise InvalidRequest(f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions")
    for part in request.partitions:
        connection.broker.topics.partition(TopicPartition(part.topic, part.partition))
    subscription = Subscription(connection, request)
    connection.subscriptions[request.subscription] = subscription
    subscription.schedule()
    return Done()


def credit(connection: NativeConnection, request: wire.Credit) -> None:
    subscription = connection.subscriptions.get(request.subscription)
    if subscription is not None:  # a credit may cross the end of its subscription on the way
        subscription.add_credit(request.credit_bytes)


def stop_push(connection: NativeConnection, request: wire.StopPush) -> Done:
    subscription = connection.subscriptions.get(request.subscription)
    if subscription is None:
        raise InvalidRequest(f"there is no subscription {request.subscription} on this connection")
    subscription.stop()
    return Done()
