"""What connections of all protocols have in common: the caller, limits of requests in flight, and backpressure.

A connection reads only while three conditions hold: the client reads its responses, not too many requests are in
flight, and memory is available. So a client that does not read, or sends without end, blocks its own socket only.

Received requests are served in turns of a few milliseconds, so that a client that sends thousands at once does not
delay the others.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from flymq.broker.service.caller import Caller
from flymq.broker.service.records import PromptFuture, Slice
from flymq.broker.service.requests import Requests
from flymq.gateways.budget import BufferBudget
from flymq.gateways.deadlines import ArrivalDeadline, StandstillDeadline, Unfinished
from flymq.gateways.outbox import Buffer, Outbox
from flymq.host.clock import Clock
from flymq.host.tasks import InlineThreads, Threads
from flymq.model.histogram import Histogram
from flymq.wire.framing import SCRATCH_BYTES

logger = logging.getLogger(__name__)

EXPIRY_REASONS = {
    "login": "it has not logged in in time",
    "request": "its request did not arrive in time",
    "unread": "it does not read its responses",
}
"""Deadlines of connections, by their names in the metrics."""

BYTES_MAX_BEFORE_LOGIN = 16 << 10
"""Maximum size of a request before the client has logged in."""

TURN_S = 0.005
"""How long requests of one connection are served before other connections have their turn."""

AFTER_END_S = 5.0
"""How long responses are awaited for a client that has closed its sending side."""

FETCHED_AT_ONCE_MAX = 20_000
"""Partitions in fetches in flight on one connection, each of which takes memory until its fetch is complete. With more,
requests behind them wait."""

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
    login_timeout_s: float = 10.0
    """The time to log in, if that is required."""
    request_timeout_s: float = 30.0
    """The time to receive a request; see deadlines.py."""

    @property
    def request_bytes_max_before_login(self) -> int:
        return min(BYTES_MAX_BEFORE_LOGIN, self.request_bytes_max)


@dataclass(slots=True)
class SharedByConnections:
    """State common to all connections of a broker."""

    clock: Clock
    budget: BufferBudget
    limits: ConnectionLimits
    requests: Requests
    expired: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(EXPIRY_REASONS, 0)))
    """Number of connections that were closed because of a deadline, by reason."""
    codec_threads: Threads = field(default_factory=InlineThreads)
    """Where large requests are decoded."""
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
        self.connected_s = self.last_active_s = shared.clock.monotonic_s()
        self.on_closed: Callable[[], None] = lambda: None
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._awaited: dict[Awaited, None] = {}
        self._gathered: list[Buffer | Slice] | None = None
        self._share = shared.budget.share("")
        self._awaits_memory = False
        self.is_busy = False
        """Whether a large request is being served; those behind it wait."""
        self.must_stop = False
        """Whether no further request is served in this turn."""
        self._is_behind = False  # received requests are left for the next turn
        self._has_turn = False  # the next turn is scheduled
        self._is_at_end = False  # the client has sent EOF
        self._arrival = ArrivalDeadline()
        self._unread = StandstillDeadline()
        self._is_draining = False
        self._throttled_until_s = 0.0
        self._fetched_at_once = 0
        self._durations: dict[int, Histogram] = {}  # by opcode: looked up once per connection, not per request
        self._is_paused = False
        self._ends_when_sent = False

    # --- open and close

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._outbox = Outbox(transport, self._reconsider)
        self._share.owner = self.caller.address = (transport.get_extra_info("peername") or ("",))[0]
        self.caller.is_encrypted = transport.get_extra_info("sslcontext") is not None
        self.local_address = (transport.get_extra_info("sockname") or ("", 0))[:2]

    def connection_lost(self, exc: Exception | None) -> None:
        for awaited in list(self._awaited):
            awaited.cancel()
        if self._outbox is not None:
            self._outbox.close()
        self._share.release()
        self._share.set_held(0)
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
        self._ends_when_sent = self.must_stop = True
        self._reconsider()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool:
        """The client sends nothing more. Requests that it has sent are served, and it has a while for the responses:
        most likely it is gone, and a fetch that waits need not wait for it."""
        self._is_at_end = True
        asyncio.get_running_loop().call_later(AFTER_END_S, self._stop_awaiting)
        if not self._is_behind:
            self.close_when_sent()
        return True

    def _stop_awaiting(self) -> None:
        """Give up what has no response yet. What has one is sent, however slowly it is read."""
        for awaited in list(self._awaited):
            awaited.cancel()
        self._reconsider()

    def logged_in(self, principal: str) -> None:
        """The client has logged in as this user."""
        self.caller.principal = principal
        self._share.belongs_to(principal)

    @property
    def bytes_max_now(self) -> int:
        """Maximum size of the next request, which is small before the login."""
        limits = self.shared.limits
        return limits.request_bytes_max_before_login if self.must_log_in else limits.request_bytes_max

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
            if self._is_draining:
                self._count_memory()

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
        if len(self._awaited) >= self.shared.limits.inflight_max:
            self.must_stop = True
        awaited.add_done_callback(done)

    # --- backpressure

    def begin_fetch(self, partitions: int) -> None:
        """Count a fetch of many partitions, until `end_fetch`."""
        self._fetched_at_once += partitions
        if self._fetched_at_once >= FETCHED_AT_ONCE_MAX:
            self.must_stop = True

    def end_fetch(self, partitions: int) -> None:
        self._fetched_at_once -= partitions
        self._reconsider()

    @property
    def is_draining(self) -> bool:
        """Whether the client does not read its responses."""
        return self._is_draining

    def throttle(self, wait_ms: int) -> None:
        """Stop reading for this long: the client is over its quota."""
        if wait_ms > 0:
            self._throttled_until_s = max(self._throttled_until_s, self.shared.clock.monotonic_s() + wait_ms / 1000)
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._reconsider)
            self._reconsider()

    def reserve(self, wanted_bytes: int) -> None:
        """Reserve memory for the request that is being received; 0 if there is none, or a small one.

        While there is no memory, nothing is read.
        """
        share = self._share
        if wanted_bytes != share.reserved and not self._awaits_memory and self._transport is not None:
            share.release()
            if wanted_bytes and not share.reserve(wanted_bytes, self._memory_granted):
                self._awaits_memory = True
                self._reconsider()

    def _memory_granted(self) -> None:
        self._awaits_memory = False
        self._reconsider()

    def _count_memory(self) -> None:
        """Count what the connection holds besides the request that it is receiving."""
        self._share.set_held(0 if self._outbox is None else self._outbox.held_bytes)

    def pause_writing(self) -> None:
        self._is_draining = True
        self._count_memory()
        self._reconsider()

    def resume_writing(self) -> None:
        self._is_draining = False
        if self._outbox is not None:
            self._outbox.pump()
        self._count_memory()
        if self._ends_when_sent:
            # Not within this call: the transport has sent everything, and would close a second time.
            asyncio.get_running_loop().call_soon(self._reconsider)
        else:
            self._reconsider()

    def _is_blocked(self) -> bool:
        """Whether no request may be served now."""
        return (
            self._is_draining
            or self._awaits_memory
            or self.is_busy
            or self._ends_when_sent
            or len(self._awaited) >= self.shared.limits.inflight_max
            or self._fetched_at_once >= FETCHED_AT_ONCE_MAX
            or self._throttled_until_s > self.shared.clock.monotonic_s()
        )

    def _must_pause(self) -> bool:
        return self._is_blocked()

    def _reconsider(self) -> None:
        """Pause or resume reading."""
        transport, outbox = self._transport, self._outbox
        if transport is None or outbox is None or transport.is_closing():
            return
        if self._ends_when_sent and outbox.is_empty and not self._awaited and not self._gathered:
            transport.close()
            return
        if self._is_behind and not self._has_turn and not self._is_blocked():
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        must_pause = self._must_pause()
        if must_pause != self._is_paused:
            self._is_paused = must_pause
            if must_pause:
                transport.pause_reading()
            else:
                transport.resume_reading()

    # --- turns

    def begin_turn(self) -> float:
        """Return the current time. The turn ends `TURN_S` later, or when `must_stop` is set."""
        self.must_stop = False
        self.last_active_s = now_s = self.shared.clock.monotonic_s()
        return now_s

    def leave_rest(self, requests: Generator[Any]) -> None:
        """Leave further requests for the next turn."""
        requests.close()
        self._is_behind = True
        self._reconsider()

    def _next_turn(self) -> None:
        self._has_turn = False
        if self.is_open and not self._is_blocked():
            self._is_behind = False
            self.serve_rest()
            if self._is_at_end and not self._is_behind:
                self.close_when_sent()
            self._reconsider()

    def serve_rest(self) -> None:
        """Serve requests that were left by `leave_rest`. Implemented by protocols that leave some."""

    # --- deadlines

    @property
    def unfinished(self) -> Unfinished | None:
        """The request that is being received, if the protocol leaves its deadline to `expire`."""
        return None

    @property
    def must_log_in(self) -> bool:
        """Whether the client must log in before anything else."""
        return False

    def expire(self, now_s: float, idle_timeout_s: float) -> None:
        """Close the connection if a deadline has passed. Called about once a second."""
        if reason := self._expired(now_s, idle_timeout_s):
            logger.info("closing a connection from %s: %s", self.caller.address, EXPIRY_REASONS[reason])
            self.shared.expired[reason] += 1
            self.abort()
        elif idle_timeout_s and self.last_active_s < now_s - idle_timeout_s and not self.inflight:
            self.close_when_sent()

    def _expired(self, now_s: float, idle_timeout_s: float) -> str:
        """Return which deadline has passed; empty if none."""
        limits, is_short = self.shared.limits, self.shared.budget.is_short
        if self.must_log_in and now_s - self.connected_s >= limits.login_timeout_s:
            return "login"
        if self._is_paused:
            self._arrival.reset()
        elif self._arrival.is_missed(now_s, self.unfinished, limits.request_timeout_s, is_short=is_short):
            return "request"
        outbox = self._outbox
        unread = None if outbox is None or outbox.is_empty else outbox.progress
        patience_s = limits.request_timeout_s if is_short else idle_timeout_s
        if self._unread.is_missed(now_s, unread, patience_s) and patience_s:
            return "unread"
        return ""
