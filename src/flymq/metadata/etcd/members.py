"""Calls to the members of an etcd cluster: which one is asked, by which connection, with which login, and how often.

One member is asked until it fails, then the next one in the list. Before the first request to a member it is checked
that it has a good version and belongs to the same cluster as the others. A read is repeated until there is no time
left; a write only if it certainly had no effect, otherwise it raises `IndeterminateResult`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TypeVar

import msgspec

from flymq.host.clock import Clock
from flymq.host.entropy import Entropy
from flymq.host.network import Network
from flymq.metadata.attempts import Attempts, Lost, NotDone
from flymq.metadata.etcd.config import Endpoint, EtcdConfig
from flymq.metadata.etcd.connection import HttpConnection, HttpStream
from flymq.metadata.etcd.messages import (
    AUTHENTICATE,
    STATUS,
    encode_login,
    parse_status,
    parse_token,
)
from flymq.metadata.etcd.outcomes import (
    FAILED_PRECONDITION,
    Refused,
    TokenExpired,
    outcome_of,
    to_error,
)
from flymq.metadata.etcd.versions import check_version
from flymq.model.errors import (
    MetadataRefused,
    MetadataServerUnsupported,
    MetadataUnavailable,
)
from flymq.wire.http.exchanges import encode_request

logger = logging.getLogger(__name__)

_CONNECTIONS_MAX = 64
"""For calls to one member; streams come on top."""
_IDLE_S_MAX = 20.0
"""An older connection may just be closed by a proxy, which would make a write indeterminate."""

T = TypeVar("T")


class Members:
    """All members of one etcd cluster."""

    def __init__(self, network: Network, clock: Clock, entropy: Entropy, config: EtcdConfig) -> None:
        self._config = config
        self._clock = clock
        self._attempts = Attempts(clock, entropy, config.timeout_s, "etcd")
        self._members = [_Member(network, clock, config, endpoint) for endpoint in config.endpoints]
        self._current = 0
        self._token: str | None = None if config.user else ""
        self._cluster_id: int | None = None
        self._is_closed = False

    def close(self) -> None:
        """Close all connections. What is sent and not answered is lost."""
        self._is_closed = True
        for member in self._members:
            member.close()

    async def check(self) -> None:
        """Check all members that can be reached. Raises MetadataServerUnsupported."""
        checks = await asyncio.gather(*map(self._check, self._members), return_exceptions=True)
        for error in checks:
            if isinstance(error, BaseException) and not isinstance(error, NotDone):
                raise error

    async def read(self, path: str, body: bytes, parse: Callable[[bytes], T], *, within_s: float | None = None) -> T:
        """Make a call that may be repeated. `parse` may raise an outcome that the response tells of.

        A member that does not respond within `within_s` is given up for the next one.
        """
        return await self._attempts.read(
            lambda deadline_s: self._call(path, body, parse, min(deadline_s, self._due(within_s)))
        )

    async def write(self, path: str, body: bytes, parse: Callable[[bytes], T]) -> T:
        """Make a call that must not happen twice."""
        return await self._attempts.write(
            lambda deadline_s: self._call(path, body, parse, min(deadline_s, self._due()))
        )

    async def stream(self, path: str, body: bytes) -> HttpStream:
        """Open a stream at the current member. Raises NotDone, Lost or Refused: the caller decides what is repeated."""
        self._check_open()
        member = self._members[self._current]
        try:
            async with asyncio.timeout(self._config.connect_timeout_s + self._config.response_timeout_s):
                await self._prepare(member)
                connection = await member.connect()
                try:
                    stream = connection.begin_stream(self._request(member, path, body))
                    await _check_stream(stream)
                    self._check_open()
                except BaseException:
                    connection.abort()
                    raise
                member.streams.add(stream)
                return stream
        except (OSError, TimeoutError) as error:
            self.failed(member)
            raise NotDone(f"{member.endpoint}: {str(error) or 'no response'}") from error
        except (NotDone, Lost, MetadataServerUnsupported) as error:
            self._note(member, error)
            raise

    def end_stream(self, stream: HttpStream, *, is_bad: bool) -> None:
        """Close a stream; if it was bad, its member is not the current one any more."""
        stream.close()
        for member in self._members:
            if stream in member.streams:
                member.streams.remove(stream)
                if is_bad:
                    self.failed(member)

    def failed(self, member: _Member) -> None:
        """Ask another member next time, if this one is still the current one."""
        if self._members[self._current] is member:
            self._current = (self._current + 1) % len(self._members)

    def forget_token(self) -> None:
        if self._config.user:
            self._token = None

    # --- one attempt

    async def _call(self, path: str, body: bytes, parse: Callable[[bytes], T], deadline_s: float) -> T:
        self._check_open()
        member = self._members[self._current]
        try:
            await self._prepare(member)
            return parse(await member.ask(self._request(member, path, body), deadline_s))
        except (NotDone, Lost, MetadataServerUnsupported) as error:
            self._note(member, error)
            raise
        except Refused as refused:
            raise to_error(refused) from refused
        except msgspec.MsgspecError as error:
            self.failed(member)
            raise Lost(f"{member.endpoint} sent what is no response of etcd: {error}") from error

    def _note(self, member: _Member, error: Exception) -> None:
        if isinstance(error, TokenExpired):
            self.forget_token()
        else:
            self.failed(member)

    def _request(self, member: _Member, path: str, body: bytes) -> bytes:
        headers = member.headers if not self._token else (*member.headers, ("Authorization", self._token))
        return encode_request("POST", path, headers, body)

    def _due(self, within_s: float | None = None) -> float:
        """Return when the response to a request of now has to be here."""
        return self._clock.monotonic_s() + (within_s or self._config.response_timeout_s)

    def _check_open(self) -> None:
        if self._is_closed:
            raise MetadataUnavailable("the metadata store is closed")

    # --- before the first request to a member

    async def _prepare(self, member: _Member) -> None:
        if not member.is_checked:
            await self._check(member)
        if self._token is None:
            await self._log_in(member)

    async def _check(self, member: _Member) -> None:
        """Check the version of a member, and that it is not of another cluster."""
        try:
            raw = await self._ask_without_effect(member, STATUS, b"{}")
            status = parse_status(raw)
        except (Refused, msgspec.MsgspecError) as error:
            raise MetadataServerUnsupported(f"{member.endpoint} is not etcd 3.4 or later: {error}") from error
        cluster_id = status.header.cluster_id
        if self._cluster_id is None:
            self._cluster_id = cluster_id
        elif cluster_id != self._cluster_id:
            raise MetadataServerUnsupported(
                f"{member.endpoint} belongs to another etcd cluster than the other endpoints"
            )
        if not member.is_checked and (warning := check_version(status.version)) is not None:
            logger.warning("metadata: %s: %s", member.endpoint, warning)
        member.is_checked = True

    async def _log_in(self, member: _Member) -> None:
        try:
            raw = await self._ask_without_effect(
                member, AUTHENTICATE, encode_login(self._config.user, self._config.password)
            )
            self._token = parse_token(raw).token
        except Refused as refused:
            if refused.code == FAILED_PRECONDITION and "not enabled" in refused.message:
                logger.warning(
                    "metadata: %s has no authentication; user %r is not used", member.endpoint, self._config.user
                )
                self._token = ""
                return
            raise MetadataRefused(
                f"etcd refuses the login of user {self._config.user!r}: {refused.message}"
            ) from refused

    async def _ask_without_effect(self, member: _Member, path: str, body: bytes) -> bytes:
        try:
            request = encode_request("POST", path, member.headers, body)
            return await member.ask(request, self._due())
        except Lost as error:
            raise NotDone(str(error)) from error


class _Member:
    """One member and its connections."""

    def __init__(self, network: Network, clock: Clock, config: EtcdConfig, endpoint: Endpoint) -> None:
        self._network = network
        self._clock = clock
        self._connect_timeout_s = config.connect_timeout_s
        self._tls = (config.tls or ssl.create_default_context()) if endpoint.is_tls else None
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._room = asyncio.Semaphore(_CONNECTIONS_MAX)
        self.endpoint = endpoint
        self.streams: set[HttpStream] = set()
        self.is_checked = False
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        self.headers = (
            ("Host", f"{host}:{endpoint.port}"),
            ("Content-Type", "application/json"),
            ("Grpc-Metadata-hasleader", "true"),  # or a member without a leader is silent until it has one again
        )

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        for connection in (*self._open, *self._idle):
            connection.abort()

    async def ask(self, request: bytes, deadline_s: float) -> bytes:
        """Send one request. Raises NotDone, Lost or Refused."""
        connection: HttpConnection | None = None
        try:
            async with asyncio.timeout(max(0.0, deadline_s - self._clock.monotonic_s())), self._room:
                connection = self._take() or await self.connect()
                self._open.add(connection)
                try:
                    status, body = await connection.ask(request)
                finally:
                    self._open.discard(connection)
        except (OSError, TimeoutError) as error:
            reason = f"{self.endpoint}: {str(error) or 'no response in time'}"
            raise (NotDone(reason) if connection is None else Lost(reason)) from error
        if connection.can_ask:
            connection.idle_since_s = self._clock.monotonic_s()
            self._idle.append(connection)
        if status != 200:
            raise outcome_of(status, body)
        return body

    def _take(self) -> HttpConnection | None:
        """Return the connection that was used last, if there is one."""
        oldest_s = self._clock.monotonic_s() - _IDLE_S_MAX
        while self._idle:
            connection = self._idle.pop()
            if connection.can_ask and connection.idle_since_s >= oldest_s:
                return connection
            connection.abort()
        return None

    async def connect(self) -> HttpConnection:
        async with asyncio.timeout(self._connect_timeout_s):
            host, port = self.endpoint.host, self.endpoint.port
            connection = await self._network.connect(HttpConnection, host, port, self._tls)
        if not connection.can_ask:
            raise ConnectionResetError("closed at once")
        return connection


async def _check_stream(stream: HttpStream) -> None:
    """Wait for the head of the response; if it is an error, raise it."""
    status = await stream.status()
    if status != 200:
        raise outcome_of(status, await stream.line() or b"")
