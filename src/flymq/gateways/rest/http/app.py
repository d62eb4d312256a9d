"""The ASGI application: finds the operation, authenticates and validates the request, calls the handler, responds.

Errors are caught only here: a `FlyMQError` becomes its problem; any other exception is an internal error, which is
logged and must not affect other requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from flymq.broker.service.caller import Caller
from flymq.broker.service.service import Service
from flymq.gateways.connection import SharedByConnections
from flymq.gateways.rest.handlers.idempotency import Answers
from flymq.gateways.rest.http.bodies import JSON, check_objects, media_type, read_body, wrong_media_type
from flymq.gateways.rest.http.browsers import check_browser
from flymq.gateways.rest.http.login import log_in
from flymq.gateways.rest.http.paths import keep_slashes, names_in
from flymq.gateways.rest.http.problems import problem_response
from flymq.gateways.rest.schema.operations import Call, Operation
from flymq.gateways.rest.schema.shapes import Diagnosis, Health
from flymq.model.errors import (
    BrokerStarting,
    BrokerUnavailable,
    FlyMQError,
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NoSuchResource,
)

logger = logging.getLogger(__name__)

PROTOCOL = "http"
_COMPRESSED_BYTES_MIN = 1024
_COMPRESSION_LEVEL = 1  # speed matters more than size here


@dataclass(frozen=True, slots=True)
class RestSettings:
    body_bytes_max: int = 16 << 20
    body_timeout_s: float = 30.0
    cors_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Names by which browsers may address a broker on loopback, besides localhost."""
    clamps_replication: bool = False
    """Whether a replication factor above the number of brokers is lowered to it."""


class Observed(Protocol):
    """What the server reports about itself."""

    @property
    def is_started(self) -> bool: ...

    @property
    def is_ready(self) -> bool: ...

    def health(self) -> Health: ...

    def metrics(self, *, detailed: bool) -> Iterator[str]: ...

    async def diagnosis(self) -> Diagnosis: ...


@dataclass(slots=True)
class Rest:
    """The context of all handlers. `service` is set once the broker has started."""

    settings: RestSettings
    shared: SharedByConnections
    observed: Observed
    operations: Sequence[Operation]
    service: Service | None = None
    answers: Answers = field(default_factory=Answers)


def build_app(rest: Rest) -> ASGIApp:
    """Return the application."""
    by_path: dict[str, dict[str, _Served]] = {}
    for operation in rest.operations:
        by_path.setdefault(operation.path, {})[operation.method] = _Served(rest, operation)
    app = keep_slashes(_Resources({path: _Resource(served) for path, served in by_path.items()}))
    if rest.settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=rest.settings.cors_origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
            expose_headers=["Location", "Next-Offset", "Idempotency-Replayed", "Retry-After"],
        )
    return app


def _may_be_packed(resource: _Resource) -> ASGIApp:
    """Compress responses if the client accepts that, but not on the hot path."""
    if resource.is_hot:
        return resource
    return GZipMiddleware(resource, minimum_size=_COMPRESSED_BYTES_MIN, compresslevel=_COMPRESSION_LEVEL)


class _Resources:
    """Finds the resource of a path.

    A router tries one route after the other, at 2 µs each. So paths without names in them are looked up, and those of
    the hot path are tried first. No two paths of the API match the same request, so the order changes nothing else.
    """

    def __init__(self, resources: Mapping[str, _Resource]) -> None:
        self._by_path: dict[str, ASGIApp] = {}
        routes = []
        for path, resource in sorted(resources.items(), key=lambda item: not item[1].is_hot):
            if "{" in path:
                routes.append(Route(path, _may_be_packed(resource), methods=None))
            else:
                self._by_path[path] = _may_be_packed(resource)
        self._router = Router(routes, redirect_slashes=False, default=_not_found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._by_path.get(scope["path"], self._router)(scope, receive, send)


class _Resource:
    """One path and its operations by method."""

    def __init__(self, served: dict[str, _Served]) -> None:
        self._served = served
        if "GET" in served:
            served.setdefault("HEAD", served["GET"])
        self._allow = ", ".join(sorted([*served, "OPTIONS"]))
        self.is_hot = any(each.operation.reads_lines for each in served.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._served.get(scope["method"])
        if served is not None:
            await served(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await Response(status_code=204, headers={"Allow": self._allow})(scope, receive, send)
        else:
            response = problem_response(MethodNotAllowed(f"{scope['method']} is not allowed here"))
            response.headers["Allow"] = self._allow
            await response(scope, receive, send)


class _Served:
    """One operation as an ASGI endpoint."""

    def __init__(self, rest: Rest, operation: Operation) -> None:
        self._rest = rest
        self.operation = operation
        self._default_query = None if operation.query is None else operation.query()
        self._decode: Callable[[bytes], Any] | None = None
        if operation.takes is not None:
            self._decode = msgspec.json.Decoder(operation.takes).decode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        clock, requests = self._rest.shared.clock, self._rest.shared.requests
        began_s = clock.monotonic_s()
        try:
            response = await self._serve(Request(scope, receive, send))
        except FlyMQError as error:
            requests.failed(PROTOCOL, error.code)
            response = problem_response(error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # What the request awaited was cancelled, not the request itself: the broker is stopping.
            response = problem_response(BrokerUnavailable("the broker is stopping"))
        except Exception:
            logger.exception("%s %r failed", scope["method"], scope["path"])
            requests.failed(PROTOCOL, InternalError.code)
            response = problem_response(InternalError())
        await response(scope, receive, send)
        requests.observe(PROTOCOL, self.operation.name, clock.monotonic_s() - began_s)

    async def _serve(self, request: Request) -> Response:
        rest, operation = self._rest, self.operation
        headers: dict[bytes, bytes] = dict(request.scope["headers"])
        check_browser(
            request.scope["method"],
            headers,
            request.scope["server"][0],
            origins=rest.settings.cors_origins,
            hosts=rest.settings.hosts,
        )
        if operation.needs_broker and rest.service is None:
            raise BrokerStarting("the broker is stopping" if rest.observed.is_started else "")
        client = request.scope["client"]
        caller = Caller(PROTOCOL, client[0] if client else "")
        if operation.needs_login and rest.service is not None:
            caller.principal = await log_in(rest.service.access, request)
        memory = rest.shared.budget.share(caller.principal or caller.address)
        call = Call(rest, request, caller, names_in(request.scope), headers, memory)
        try:
            return await self._call(call)
        finally:
            memory.release()

    async def _call(self, call: Call) -> Response:
        operation, request = self.operation, call.request
        if operation.query is not None:
            is_given = request.scope["query_string"]
            call.query = _parse_query(request, operation.query) if is_given else self._default_query
        if self._decode is not None and not operation.reads_lines:
            call.body = await self._parse_body(call)
        answer = await operation.handler(call)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(answer), operation.status, media_type=JSON)

    async def _parse_body(self, call: Call) -> Any:
        if media_type(call) != JSON:
            raise wrong_media_type(call, JSON)
        assert self._decode is not None
        return decode_body(self._decode, await read_body(call))


def decode_body(decode: Callable[[bytes], Any], body: bytes) -> Any:
    """Decode JSON into its shape, or raise an error that says what is invalid and where."""
    check_objects(body)
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body: {error}", hint="GET /docs shows what is expected.") from None


def _parse_query(request: Request, shape: type[msgspec.Struct]) -> Any:
    given = request.query_params
    if len(given) != len(given.multi_items()):
        raise InvalidRequest("a query parameter is set twice", hint="Set each parameter once.")
    try:
        query = msgspec.convert(dict(given), shape, strict=False)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidRequest(f"the query: {error}", hint="GET /docs lists the parameters.") from None
    for name, text in given.items():
        value = getattr(query, name)
        # msgspec accepts `null` as no value, and `1.0` as an integer.
        if value is None or (type(value) is int and not text.lstrip("-").isdecimal()):
            raise InvalidRequest(f"the query: {name} is {text!r}", hint="GET /docs lists the parameters.")
    return query


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await problem_response(NoSuchResource(f"there is nothing at {scope['path']}"))(scope, receive, send)
