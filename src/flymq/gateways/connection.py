"""What connections of all protocols have in common: the caller, limits of requests in flight, and backpressure.

A connection reads only while three conditions hold: the client reads its responses, not too many requests are in
flight, and memory is available. So a client that does not read, or sends without end, blocks its own socket only.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from flymq.broker.service.caller import Caller
from flymq.broker.service.records import PromptFuture, Slice
from flymq.broker.service.requests import Requests
from flymq.gateways.budget import BufferBudget
from flymq.gateways.outbox import Buffer, Outbox
from flymq.host.clock import Clock
from flymq.model.histogram import Histogram
from flymq.wire.framing import SCRATCH_BYTES

Awaited = asyncio.Future[Any] | PromptFuture[Any]
"""What a response waits for."""


class AnswerLater(NamedTuple):
    """A response that is built when a future is done. Cheaper than a coroutine, which needs a task."""

    awaited: Awaited
    answer: Callable[[Any], Any]


def answer_when(awaited: Awaited | None, answer: Callable[[], Any]) -> Any:
    """Respond at once, or when the future is done."""
    return answer() if awaited is None else AnswerLater(awaited, lambda _: answer())


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one connection."""

    inflight_max: int = 64
    request_bytes_max: int = 64 << 20
    handshake_timeout_s: float = 10.0


@dataclass(slots=True)
class SharedByConnections:
    """State common to all connections of a broker."""

    clock: Clock
    budget: BufferBudget
    limits: ConnectionLimits
    requests: Requests
    scratch: bytearray = field(default_factory=lambda: bytearray(SCRATCH_BYTES))
    """The receive buffer: the event loop reads one socket at a time. Each broker has its own loop and buffer."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """The numbers of connections."""


class Connection(asyncio.BufferedProtocol):
    """One connection. A protocol implements `get_buffer` and `buffer_updated`."""

    protocol: ClassVar[str]

    def __init__(self, shared: SharedByConnections) -> None:
        self.shared = shared
        self.caller = Caller(self.protocol, connection=next(shared.numbers))
        self.local_address: tuple[str, int] = ("", 0)
        self.last_active_s = shared.clock.monotonic_s()
        self.on_closed: Callable[[], None] = lambda: None
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._awaited: dict[Awaited, None] = {}
        self._gathered: list[Buffer | Slice] | None = None
        self._held_bytes = 0
        self._is_draining = False
        self._throttled_until_s = 0.0
        self._durations: dict[int, Histogram] = {}  # by opcode: looked up once per connection, not per request
        self._is_paused = False
        self._ends_when_sent = False

    # --- open and close

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._outbox = Outbox(transport)
        self.caller.address = (transport.get_extra_info("peername") or ("",))[0]
        self.caller.is_encrypted = transport.get_extra_info("sslcontext") is not None
        self.local_address = (transport.get_extra_info("sockname") or ("", 0))[:2]

    def connection_lost(self, exc: Exception | None) -> None:
        for awaited in list(self._awaited):
            awaited.cancel()
        if self._outbox is not None:
            self._outbox.close()
        self._hold(0)
        self.shared.budget.forget(self._reconsider)
        self._transport = None
        self.on_closed()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def inflight(self) -> int:
        """Requests in flight."""
        return len(self._awaited)

    def close_when_sent(self) -> None:
        """Flush, then close; read nothing more."""
        self._ends_when_sent = True
        self._reconsider()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def feed(self, data: bytes) -> None:
        """Process bytes that were received before the protocol was known."""
        rest = memoryview(data)
        while rest and self.is_open:
            room = memoryview(self.get_buffer(len(rest)))
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.buffer_updated(count)
            rest = rest[count:]

    # --- send and wait

    def send(self, pieces: Sequence[Buffer | Slice]) -> None:
        """Send at once, unless responses are being gathered."""
        if self._gathered is not None:
            self._gathered += pieces
        elif self._outbox is not None and self.is_open:
            self._outbox.send(pieces)
            self._reconsider()

    def send_soon(self, pieces: Sequence[Buffer | Slice]) -> None:
        """Send in one write with other responses of this loop iteration: many are due after an fsync."""
        if self._gathered is None:
            self._gathered = []
            asyncio.get_running_loop().call_soon(self.send_gathered)
        self._gathered += pieces

    def gather(self) -> None:
        """Collect responses, to send them in one write with `send_gathered`."""
        if self._gathered is None:
            self._gathered = []

    def send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, None
        if gathered:
            self.send(gathered)

    def answer_later(self, awaited: Awaited, answer: Callable[[Awaited], None]) -> None:
        """Call `answer` when it is done, if the client is still connected; closing the connection cancels it."""

        def done(awaited: Awaited) -> None:
            self._awaited.pop(awaited, None)
            if self.is_open and not awaited.cancelled():
                answer(awaited)
                self._reconsider()

        self._awaited[awaited] = None
        awaited.add_done_callback(done)

    # --- backpressure

    def throttle(self, wait_ms: int) -> None:
        """Stop reading for this long: the client is over its quota."""
        if wait_ms > 0:
            self._throttled_until_s = max(self._throttled_until_s, self.shared.clock.monotonic_s() + wait_ms / 1000)
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._reconsider)
            self._reconsider()

    def hold(self, received_bytes: int) -> None:
        """Set the memory used by an incomplete request."""
        unsent = 0 if self._outbox is None else self._outbox.held_bytes
        self._hold(received_bytes + unsent)

    def _hold(self, count: int) -> None:
        if count != self._held_bytes:
            change = count - self._held_bytes
            self._held_bytes = count
            self.shared.budget.change(change)

    def pause_writing(self) -> None:
        self._is_draining = True
        self._reconsider()

    def resume_writing(self) -> None:
        self._is_draining = False
        if self._outbox is not None:
            self._outbox.pump()
        self._reconsider()

    def _must_pause(self) -> bool:
        shared = self.shared
        if shared.budget.is_exhausted:
            shared.budget.when_free(self._reconsider)
            return True
        return (
            self._is_draining
            or self._ends_when_sent
            or len(self._awaited) >= shared.limits.inflight_max
            or self._throttled_until_s > shared.clock.monotonic_s()
        )

    def _reconsider(self) -> None:
        """Pause or resume reading."""
        transport, outbox = self._transport, self._outbox
        if transport is None or outbox is None or transport.is_closing():
            return
        if self._ends_when_sent and outbox.is_empty and not self._awaited and not self._gathered:
            transport.close()
            return
        must_pause = self._must_pause()
        if must_pause != self._is_paused:
            self._is_paused = must_pause
            if must_pause:
                transport.pause_reading()
            else:
                transport.resume_reading()
