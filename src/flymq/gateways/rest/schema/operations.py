"""One operation of the API: its path, its request and response, and its handler.

Both the route and the OpenAPI document are generated from it, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from flymq.broker.service.caller import Caller
from flymq.broker.service.service import Service
from flymq.gateways.budget import Share
from flymq.model.errors import FlyMQError

if TYPE_CHECKING:
    from flymq.gateways.rest.http.app import Rest


@dataclass(slots=True)
class Call:
    """One request to a handler."""

    rest: Rest
    request: Request
    caller: Caller
    path: dict[str, Any]
    """The names in the path."""
    headers: dict[bytes, bytes]
    """By lower-case name. Starlette's headers are searched linearly for each lookup."""
    memory: Share
    """Its share of the memory budget, for its body; released after the response was made."""
    query: Any = None
    body: Any = None

    def header(self, name: bytes, default: str = "") -> str:
        value = self.headers.get(name)
        return default if value is None else value.decode("latin-1")

    @property
    def service(self) -> Service:
        service = self.rest.service
        assert service is not None, "the operation would have been refused"
        return service


Handler = Callable[[Call], Awaitable[Any]]
"""Returns a struct to send as JSON, a response, or None for no content."""


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    handler: Handler
    gives: type[msgspec.Struct] | str | None = None
    """The shape of the response; a media type if it is not JSON; None for no content."""
    takes: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    status: int = 200
    errors: tuple[type[FlyMQError], ...] = ()
    needs_broker: bool = True
    """Whether it is refused while the broker starts."""
    needs_login: bool = True
    reads_lines: bool = False
    """The handler reads the body itself; it may be NDJSON."""
    gives_lines: bool = False
    """The response may be NDJSON, if the client accepts that."""
    other_statuses: tuple[int, ...] = ()
    """Other statuses with the same shape."""

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").partition("\n")[0].rstrip(".")

    @property
    def tag(self) -> str:
        """The OpenAPI tag."""
        module = self.handler.__module__.rpartition(".")[2]
        return "records" if module in ("produce", "read") else module
