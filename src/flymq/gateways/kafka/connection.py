"""A connection of the Kafka protocol: requests in, handler called, responses out in the order of the requests.

A request that waits does not block the next ones, so that one fsync serves many appends. Only their responses wait,
since clients rely on their order. A request that cannot be decoded closes the connection, as in Kafka's brokers, since
no response could carry the error.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from flymq.broker.access.login import Login
from flymq.broker.service.records import PendingFetch, Slice
from flymq.broker.service.service import Service
from flymq.gateways.connection import TURN_S, AnswerLater, Awaited, SharedByConnections
from flymq.gateways.framed_connection import FramedConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.fetch_session import FetchSession
from flymq.gateways.kafka.large_requests import LARGE_BYTES, SPLIT_BYTES, split_of
from flymq.gateways.outbox import Buffer
from flymq.gateways.pieces import serve_in_pieces
from flymq.model.errors import AuthenticationFailed, FlyMQError, InternalError, Unauthenticated, UnsupportedVersion
from flymq.wire.kafka.apis import CODECS, Api
from flymq.wire.kafka.codec import encode_response, messages_of, parse_request
from flymq.wire.kafka.framing import RequestCutter, RequestHead, parse_client_id, parse_head
from flymq.wire.kafka.old_produce import OLD_PRODUCE, refuse_old_produce

if TYPE_CHECKING:
    from flymq.gateways.kafka.waiting_heartbeats import WaitingHeartbeat

logger = logging.getLogger(__name__)

Pieces = list[Buffer | Slice]


Handler = Callable[["KafkaConnection", Any, int], Any]
"""Takes the connection, the request and its version; returns a response, None for no response at all, an `AnswerLater`
or a coroutine that returns a response."""

LogIn = Callable[["KafkaConnection", bytes], Coroutine[Any, Any, bytes]]
"""Takes the next message of a login; returns the response, or raises an error if the login fails."""

_NAMES = {api.value: api.name.lower() for api in Api}
_FIRST = {int(api): versions.first for api, versions in CODECS.items()}
_LAST = {int(api): versions.last for api, versions in CODECS.items()}
_PRODUCE = int(Api.PRODUCE)  # an enum is slow to compare
_FETCH = int(Api.FETCH)
_BEFORE_LOGIN = frozenset((Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE))


class EncodedResponse(Pieces):
    """A response that was encoded in a thread."""


@dataclass(slots=True)
class _Turn:
    """A response in the queue; `pieces` is set once it is complete."""

    pieces: Pieces | None = None


class KafkaConnection(FramedConnection[memoryview]):
    """One connection of the Kafka protocol."""

    protocol = "kafka"

    def __init__(self, service: Service, shared: SharedByConnections, handlers: Mapping[int, Handler]) -> None:
        super().__init__(service, shared, RequestCutter(shared.scratch))
        self.login: Login | None = None
        self.takes_token: LogIn | None = None
        self.fetch_session: FetchSession | None = None
        self.software = ("", "")
        """Name and version of the client library, as it says."""
        self.waiting_heartbeat: WaitingHeartbeat | None = None
        self._handlers = handlers
        self._turns: deque[_Turn] = deque()

    @property
    def served(self) -> list[Api]:
        """The supported APIs."""
        return [Api(api) for api in sorted(self._handlers)]

    @property
    def peer_port(self) -> int:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return peer[1] if peer else 0

    # --- receive

    def serve_all(self, requests: Generator[memoryview]) -> None:
        began_s = self.begin_turn()
        clock, ends_s = self.shared.clock.monotonic_s, began_s + TURN_S
        self.gather()
        try:
            for request in requests:
                if self.waiting_heartbeat is not None:
                    self.waiting_heartbeat.finish()  # the answers behind it must not wait
                self._serve(request)
                if self.must_stop or clock() > ends_s:
                    self.leave_rest(requests)
                    break
        except FlyMQError as error:
            logger.info("%s: %s", self.caller.address, error.message)
            self.close_when_sent()
        self.send_gathered()
        if not self.is_busy:  # else its memory is in use until it is served
            self.reserve(self._cutter.wanted_bytes)

    def logged_in(self, principal: str) -> None:
        super().logged_in(principal)
        self.takes_token = None

    # --- serve

    def _serve(self, frame: memoryview) -> None:
        if self.takes_token is not None:
            self._take_token(frame, self.takes_token)
            return
        head = parse_head(frame)
        api, version, _, size = head
        handler = self._handlers.get(api)
        if handler is None or not _FIRST[api] <= version <= _LAST[api]:
            self._refuse_version(head, frame)
            return
        if not self.is_logged_in and api not in _BEFORE_LOGIN:
            raise Unauthenticated(f"{Api(api).name} before authentication")
        if not self.caller.client_id:
            self.caller.client_id = parse_client_id(frame, head)
        began_s = self.shared.clock.monotonic_s()
        if len(frame) > LARGE_BYTES and api != _PRODUCE:
            self._answer_later(head, began_s, self._in_threads(head, handler, frame))
            return
        request = parse_request(api, version, frame, size)
        if len(frame) > SPLIT_BYTES and (split := split_of(api, version)) is not None and split.is_needed(request):
            self._answer_later(head, began_s, self._in_threads(head, handler, frame))
            return
        try:
            result = handler(self, request, version)
        except FlyMQError as error:
            result = self._failed(api, error)
        except Exception:  # an internal error must not affect other clients; it is logged with its traceback
            logger.exception("%s version %d of %s failed", Api(api).name, version, self.caller.address)
            result = self._failed(api, InternalError())
        if isinstance(result, AnswerLater):
            self._answer_later(head, began_s, result)
        elif isinstance(result, CoroutineType):
            self._answer_later(head, began_s, self._when_returned(head, result))
        else:
            if result is not None:
                self._reply(_pieces(head, result))
            self._served(api, began_s)

    def _in_threads(self, head: RequestHead, handler: Handler, frame: memoryview) -> AnswerLater:
        """Serve a request with many elements; those behind it wait, as their order matters."""
        self.is_busy = self.must_stop = True
        return AnswerLater(asyncio.ensure_future(self._serve_large(head, handler, self._cutter.keep(frame))), _as_it_is)

    async def _serve_large(self, head: RequestHead, handler: Handler, frame: memoryview) -> EncodedResponse | None:
        api, version, _, size = head
        threads = self.shared.codec_threads
        try:
            request = await threads.run(lambda: parse_request(api, version, frame, size))
            split = split_of(api, version)
            if split is not None and split.is_needed(request):
                response = await serve_in_pieces(split, request, lambda part: handler(self, part, version))
            else:
                response = handler(self, request, version)
                del request, frame  # no longer needed, while a fetch waits
                self.no_longer_busy()
                if isinstance(response, AnswerLater):
                    response = response.answer(await response.awaited)
                elif isinstance(response, CoroutineType):
                    response = await response
            return None if response is None else await self._encode_in_thread(head, response)
        finally:
            self.no_longer_busy()

    def _when_returned(self, head: RequestHead, coming: Coroutine[Any, Any, Any]) -> AnswerLater:
        if head.api == _FETCH:  # a coroutine only for many partitions
            coming = self._encoded_in_thread(head, coming)
        return AnswerLater(asyncio.ensure_future(coming), _as_it_is)

    async def _encoded_in_thread(self, head: RequestHead, coming: Coroutine[Any, Any, Any]) -> EncodedResponse:
        return await self._encode_in_thread(head, await coming)

    async def _encode_in_thread(self, head: RequestHead, response: Any) -> EncodedResponse:
        return EncodedResponse(await self.shared.codec_threads.run(lambda: _pieces(head, response)))

    def _take_token(self, frame: memoryview, log_in: LogIn) -> None:
        """Process a login message after SaslHandshake 0: a raw frame without a request header, as is its response."""
        if self.is_logging_in:
            raise AuthenticationFailed("one login at a time")
        self.is_logging_in = True
        turn = _Turn()
        self._turns.append(turn)

        def answer(done: Awaited) -> None:
            if done.exception() is not None:
                self.abort()
                return
            message: bytes = done.result()
            turn.pieces = [len(message).to_bytes(4, "big") + message]
            self._reply_in_turn(self.send)

        self.answer_later(asyncio.ensure_future(log_in(self, bytes(frame))), answer)

    def _refuse_version(self, head: RequestHead, frame: memoryview) -> None:
        """Send an error that the client can decode, if possible; else close the connection."""
        if head.api == Api.API_VERSIONS:
            # As version 0, which every client can decode, with the supported versions.
            versions = self._handlers[Api.API_VERSIONS](self, None, 0)
            versions.error_code = ErrorCode.UNSUPPORTED_VERSION
            self._reply(_pieces(head._replace(version=0), versions))
        elif head.api == Api.PRODUCE and head.version in OLD_PRODUCE:
            refused = refuse_old_produce(frame, head, ErrorCode.UNSUPPORTED_VERSION)
            if refused is not None:
                self._reply([refused])
        else:
            raise UnsupportedVersion(f"version {head.version} of API {head.api} is not supported")

    def _failed(self, api: int, error: FlyMQError) -> Any:
        """Return the response for a request that failed as a whole."""
        self.service.accounts.failed(self.caller, error)
        response = messages_of(api).RESPONSE()
        if not hasattr(response, "error_code"):
            raise error
        response.error_code = code_of(error)
        if hasattr(response, "error_message"):
            response.error_message = error.message
        return response

    # --- respond in order

    def _served(self, api: int, began_s: float) -> None:
        durations = self._durations.get(api)
        if durations is None:
            durations = self._durations[api] = self.shared.requests.of(self.protocol, _NAMES[api])
        durations.observe(self.shared.clock.monotonic_s() - began_s)

    def _answer_later(self, head: RequestHead, began_s: float, later: AnswerLater) -> None:
        turn = _Turn()
        self._turns.append(turn)

        def answer(done: Awaited) -> None:
            self._served(head.api, began_s)
            try:
                turn.pieces = _pieces(head, self._response_of(head, done, later.answer))
            except FlyMQError as error:  # no response can carry this error
                logger.info("%s of %s: %s", Api(head.api).name, self.caller.address, error.message)
                self.abort()
            except Exception:  # an internal error: the responses after this one could never be sent
                logger.exception("%s of %s failed", Api(head.api).name, self.caller.address)
                self.abort()
            else:
                # A consumer waits for records, so at once; the others are many, after an fsync.
                self._reply_in_turn(self.send if isinstance(done, PendingFetch) else self.send_soon)

        self.answer_later(later.awaited, answer)

    def _response_of(self, head: RequestHead, done: Awaited, make: Callable[[Any], Any]) -> Any:
        error = done.exception()
        if error is None:
            return make(done.result())
        if isinstance(error, FlyMQError):
            return self._failed(head.api, error)
        logger.error("%s of %s failed", Api(head.api).name, self.caller.address, exc_info=error)
        return self._failed(head.api, InternalError())

    def _reply(self, pieces: Pieces) -> None:
        if self._turns:
            self._turns.append(_Turn(pieces))
        else:
            self.send(pieces)

    def _reply_in_turn(self, send: Callable[[Pieces], None]) -> None:
        """Send the complete responses, up to the first incomplete one."""
        turns = self._turns
        while turns and (pieces := turns[0].pieces) is not None:
            turns.popleft()
            send(pieces)


def _pieces(head: RequestHead, response: Any) -> Pieces:
    if isinstance(response, EncodedResponse) or response is None:
        return response or []
    # The only bodies in responses are slices of a log.
    return cast(Pieces, encode_response(head.api, head.version, head.correlation_id, response))


def _as_it_is(response: Any) -> Any:
    return response
