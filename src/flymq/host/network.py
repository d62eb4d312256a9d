"""Network connections: listen and connect, by TCP or by a Unix domain socket on the same machine.

`Network` is the interface; `SystemNetwork` is the real one, `SimulatedNetwork` (simulated_network.py) has delays and
faults. A connection is an asyncio transport, passed to its protocol by `connection_made`; there is no layer between
the two.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from flymq.model.errors import AddressInUse, ListenFailed

logger = logging.getLogger(__name__)

TLS_HANDSHAKE = 0x16
_ACCEPTS_PER_TURN = 64
_ACCEPT_AGAIN_S = 1.0
_LOCAL_PATH_BYTES_MAX = 103
"""Of the path of a Unix domain socket; the system with the smallest limit is macOS."""

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Accepted(Protocol):
    """An accepted connection that has no protocol yet."""

    peer_host: str
    """Empty for a local connection."""

    async def begin(self, protocol: asyncio.BaseProtocol, *, tls: ssl.SSLContext | None, within_s: float) -> None:
        """Give it to `protocol`, after a TLS handshake if there is a context and the first byte starts one.

        Raises OSError (an SSLError is one) if that fails; then it is closed.
        """

    def close(self) -> None:
        """Close it without a response."""


class OpenPort(Protocol):
    """A port that accepts connections until `close`."""

    port: int
    """0 for a local socket."""
    is_refused: bool
    """Whether the system accepts no connection now, most likely for lack of a free descriptor."""

    def close(self) -> None: ...


class Network(Protocol):
    async def listen(self, host: str, port: int, backlog: int, accept: Callable[[Accepted], None]) -> OpenPort:
        """Listen on all addresses of `host`; port 0 chooses a free one. Raises AddressInUse or ListenFailed."""

    async def connect(self, new_protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None) -> P:
        """Connect and return the protocol of the connection, or raise OSError."""

    async def listen_local(self, path: Path, backlog: int, accept: Callable[[Accepted], None]) -> OpenPort:
        """Listen on a socket in the file system that only this user can open. Raises AddressInUse or ListenFailed."""

    async def connect_local(self, new_protocol: Callable[[], P], path: Path) -> P:
        """Connect to such a socket, or raise OSError."""


class SystemNetwork:
    """The operating system's sockets."""

    async def listen(self, host: str, port: int, backlog: int, accept: Callable[[Accepted], None]) -> OpenPort:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror as error:
            raise ListenFailed(f"cannot listen on {host!r}: {error.strerror}") from error
        opened = SystemPort(accept)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                opened.add(_listen(family, (address[0], opened.port or port, *address[2:]), backlog))
        except BaseException:
            opened.close()
            raise
        return opened

    async def connect(self, new_protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None) -> P:
        _, protocol = await asyncio.get_running_loop().create_connection(new_protocol, host, port, ssl=tls)
        return protocol

    async def listen_local(self, path: Path, backlog: int, accept: Callable[[Accepted], None]) -> OpenPort:
        opened = SystemPort(accept, path)
        opened.add(_listen_local(path, backlog))
        return opened

    async def connect_local(self, new_protocol: Callable[[], P], path: Path) -> P:
        _, protocol = await asyncio.get_running_loop().create_unix_connection(new_protocol, str(path))
        return protocol


class SystemPort:
    """One port on all addresses of a host, or a local socket."""

    def __init__(self, accept: Callable[[Accepted], None], path: Path | None = None) -> None:
        self._accept = accept
        self._path = path
        self._sockets: list[socket.socket] = []
        self.is_refused = False
        self.port = 0

    def add(self, opened: socket.socket) -> None:
        self._sockets.append(opened)
        if self._path is None:
            self.port = opened.getsockname()[1]
        asyncio.get_running_loop().add_reader(opened, self._accept_some, opened)

    def close(self) -> None:
        for opened in self._sockets:
            asyncio.get_running_loop().remove_reader(opened)
            opened.close()
        if self._path is not None and self._sockets:
            self._path.unlink(missing_ok=True)
        self._sockets.clear()

    def _accept_some(self, opened: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, address = opened.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._note_accepted()  # there was a free descriptor
                return
            except OSError as error:
                # Out of descriptors, most likely. The client stays in the backlog; retry after a pause.
                if not self.is_refused:
                    logger.error("cannot accept connections, retrying: %s", error.strerror)
                    self.is_refused = True
                loop = asyncio.get_running_loop()
                loop.remove_reader(opened)
                loop.call_later(_ACCEPT_AGAIN_S, self._accept_again, opened)
                return
            self._note_accepted()
            self._accept(SystemAccepted(accepted, address[0] if self._path is None else ""))

    def _note_accepted(self) -> None:
        if self.is_refused:
            logger.warning("connections are accepted again")
            self.is_refused = False

    def _accept_again(self, opened: socket.socket) -> None:
        if opened in self._sockets:
            asyncio.get_running_loop().add_reader(opened, self._accept_some, opened)
            self._accept_some(opened)


class SystemAccepted:
    def __init__(self, accepted: socket.socket, peer_host: str) -> None:
        self._socket = accepted
        self.peer_host = peer_host

    async def begin(self, protocol: asyncio.BaseProtocol, *, tls: ssl.SSLContext | None, within_s: float) -> None:
        accepted = self._socket
        try:
            accepted.setblocking(False)
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            is_tls = tls is not None and await _peek(accepted) == TLS_HANDSHAKE
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=tls if is_tls else None,
                ssl_handshake_timeout=within_s if is_tls else None,
            )
        except BaseException:
            accepted.close()
            raise

    def close(self) -> None:
        self._socket.close()


async def _peek(accepted: socket.socket) -> int:
    """Peek at the first byte, so that TLS can still read it."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(accepted, readable.set)
    try:
        while True:
            await readable.wait()
            readable.clear()
            try:
                first = accepted.recv(1, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                continue
            if not first:
                raise ConnectionResetError(errno.ECONNRESET, "closed before the first byte")
            return first[0]
    finally:
        loop.remove_reader(accepted)


def _listen(family: int, address: tuple[str | int, ...], backlog: int) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.setblocking(False)
        opened.bind(address)
        opened.listen(backlog)
    except OSError as error:
        opened.close()
        where = f"{address[0]}:{address[1]}"
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"port {address[1]} on {address[0]} is in use") from error
        raise ListenFailed(f"cannot listen on {where}: {error.strerror}") from error
    return opened


def _listen_local(path: Path, backlog: int) -> socket.socket:
    if len(os.fsencode(path)) > _LOCAL_PATH_BYTES_MAX:
        raise ListenFailed(f"cannot listen on {path}: a socket's path has at most {_LOCAL_PATH_BYTES_MAX} bytes")
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        _remove_dead_socket(path)
        opened.bind(str(path))
        path.chmod(0o600)  # nobody can connect before `listen`
        opened.listen(backlog)
    except OSError as error:
        opened.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"{path} is in use") from error
        raise ListenFailed(f"cannot listen on {path}: {error.strerror}") from error
    return opened


def local_socket_path(directory: Path) -> Path:
    """Return a path for a local socket in `directory`; in a new temporary one if its path is too long for a socket."""
    path = directory / "socket"
    if len(os.fsencode(path)) <= _LOCAL_PATH_BYTES_MAX:
        return path
    return Path(tempfile.mkdtemp(prefix="flymq-")) / "socket"


def _remove_dead_socket(path: Path) -> None:
    """Remove the socket of a process that has died. The owner of the directory must hold a lock."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
