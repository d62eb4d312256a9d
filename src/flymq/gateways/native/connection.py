"""A connection of the native protocol: frames in, handler called, responses out.

Hot path: the responses to all frames of one read are sent in one write, and a request that need not wait has no task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

from flymq.broker.service.brokers import ReplicaSession
from flymq.broker.service.records import Slice
from flymq.broker.service.service import Service
from flymq.gateways.connection import TURN_S, AnswerLater, Awaited, SharedByConnections
from flymq.gateways.framed_connection import FramedConnection
from flymq.gateways.native.large_requests import SPLIT_BYTES, SPLITS
from flymq.gateways.outbox import Buffer
from flymq.gateways.pieces import Split, serve_in_pieces
from flymq.model.errors import FlyMQError, InternalError, NotAPeer, Unauthenticated, UnknownOpcode
from flymq.wire.first_bytes import Speaks
from flymq.wire.native.codec import decode_request, encode_answer, encode_error, peek_id
from flymq.wire.native.framing import MAGIC, Frame, FrameCutter
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.opcodes import PEER_OPCODES, Opcode

if TYPE_CHECKING:
    from flymq.gateways.native.push import Push

logger = logging.getLogger(__name__)

Pieces = list[Buffer | Slice]
Answer = Message | Pieces | None
"""A message, an encoded frame in pieces, or nothing."""


Handler = Callable[["NativeConnection", Any], "Answer | AnswerLater | Awaitable[Answer]"]

_NAMES = {opcode.value: opcode.name.lower() for opcode in Opcode}
_BEFORE_LOGIN = frozenset((Opcode.HELLO, Opcode.AUTHENTICATE, Opcode.PING, Opcode.JOIN_PEER))


class NativeConnection(FramedConnection[Frame]):
    """One connection of the native protocol."""

    protocol = "native"

    def __init__(self, service: Service, shared: SharedByConnections, handlers: dict[int, Handler]) -> None:
        super().__init__(service, shared, FrameCutter(shared.scratch))
        self.pushes: dict[int, Push] = {}
        self.peer: ReplicaSession | None = None
        """Set if another broker of the cluster is at the other end."""
        self._handlers = handlers

    @property
    def opcodes(self) -> list[int]:
        """The supported operations."""
        return sorted(self._handlers)

    def joined(self, session: ReplicaSession, principal: str) -> None:
        """Another broker has proved who it is."""
        if self.peer is not None:
            self.peer.close()
        self.peer = session
        self.caller.is_peer = True
        self.logged_in(principal)

    # --- receive

    def serve_all(self, frames: Generator[Frame]) -> None:
        began_s = self.begin_turn()
        clock, ends_s = self.shared.clock.monotonic_s, began_s + TURN_S
        self.gather()
        is_lost = False
        try:
            for frame in frames:
                self._serve(frame, began_s)
                if self.must_stop or clock() > ends_s:
                    self.leave_rest(frames)
                    break
        except FlyMQError as error:
            self.send([encode_error(error)])
            is_lost = True
        self.send_gathered()
        if is_lost:  # the start of the next frame is unknown
            self.close_when_sent()
        if not self.is_busy:  # else its memory is in use until it is served
            self.reserve(self._cutter.wanted_bytes)

    def resume_writing(self) -> None:
        super().resume_writing()
        for push in list(self.pushes.values()):
            push.schedule()

    def eof_received(self) -> bool:
        if not self._is_behind and not self._cutter.is_between_frames:
            logger.info("%s disconnected within a frame", self.caller.address)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        for push in list(self.pushes.values()):
            push.stop()
        if self.peer is not None:
            self.peer.close()
        super().connection_lost(exc)

    # --- serve

    def _serve(self, frame: Frame, began_s: float) -> None:
        opcode, payload = frame
        try:
            request = decode_request(opcode, payload)
            handler = self._handlers.get(opcode)
            if handler is None:
                raise UnknownOpcode(f"{Opcode(opcode).name} is not supported by this broker")
            if not self.is_logged_in and opcode not in _BEFORE_LOGIN:
                raise Unauthenticated(f"{Opcode(opcode).name} before AUTHENTICATE")
            if opcode in PEER_OPCODES and self.peer is None and opcode != Opcode.JOIN_PEER:
                raise NotAPeer(f"{Opcode(opcode).name} is for brokers of the cluster only")
            if len(payload) > SPLIT_BYTES and (split := SPLITS.get(opcode)) is not None and split.is_needed(request):
                if (kept := self._cutter.keep(payload)) is not payload:
                    request = decode_request(opcode, kept)  # again: the first one has views of the scratch memory
                self._answer_later(opcode, request.id, began_s, self._in_pieces(split, request, handler))
                return
            result = handler(self, request)
        except FlyMQError as error:
            self._reply_error(error, peek_id(payload))
            return
        except Exception:  # an internal error must not affect other clients; it is logged with its traceback
            logger.exception("opcode %#04x of %s failed", opcode, self.caller.address)
            self._reply_error(InternalError(), peek_id(payload))
            return
        if result is None or isinstance(result, (Message, list)):
            self._answer(opcode, request.id, result)
            self._served(opcode, began_s)
        elif isinstance(result, AnswerLater):
            self._answer_later(opcode, request.id, began_s, result)
        else:
            self._answer_later(opcode, request.id, began_s, AnswerLater(asyncio.ensure_future(result), _as_it_is))

    def _in_pieces(self, split: Split, request: Message, handler: Handler) -> AnswerLater:
        """Serve a request with many elements in pieces; those behind it wait, as their order matters."""
        self.is_busy = self.must_stop = True
        return AnswerLater(asyncio.ensure_future(self._serve_large(split, request, handler)), _as_it_is)

    async def _serve_large(self, split: Split, request: Message, handler: Handler) -> Any:
        try:
            return await serve_in_pieces(split, request, lambda part: handler(self, part))
        finally:
            self.no_longer_busy()

    def _answer_later(self, opcode: int, request_id: int, began_s: float, later: AnswerLater) -> None:
        def answer(done: Awaited) -> None:
            self._served(opcode, began_s)
            error = done.exception()
            if error is None:
                self._answer(opcode, request_id, later.answer(done.result()))
            elif isinstance(error, FlyMQError):
                self._reply_error(error, request_id)
            else:
                logger.error("opcode %#04x of %s failed", opcode, self.caller.address, exc_info=error)
                self._reply_error(InternalError(), request_id)

        self.answer_later(later.awaited, answer)

    def _served(self, opcode: int, began_s: float) -> None:
        durations = self._durations.get(opcode)
        if durations is None:
            durations = self._durations[opcode] = self.shared.requests.of(self.protocol, _NAMES[opcode])
        durations.observe(self.shared.clock.monotonic_s() - began_s)

    def _reply_error(self, error: FlyMQError, request_id: int) -> None:
        self.service.accounts.failed(self.caller, error)
        self.send_soon([encode_error(error, request_id)])

    def _answer(self, opcode: int, request_id: int, answer: Answer) -> None:
        if isinstance(answer, Message):
            answer.id = request_id
            self.send_soon([encode_answer(opcode, answer)])
        elif answer is not None:
            self.send(answer)  # records: a consumer may be waiting for them


def _as_it_is(answer: Answer) -> Answer:
    return answer


def speaks_native(first: bytes) -> Speaks:
    return Speaks.YES if first[0] == MAGIC else Speaks.NO
