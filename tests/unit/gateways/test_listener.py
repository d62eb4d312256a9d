"""Everybody who knocks is counted from the first moment on, and nobody stays who says nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType

import pytest
import trustme

from flymq.broker.service.requests import Requests
from flymq.gateways.budget import BufferBudget
from flymq.gateways.connection import Connection, ConnectionLimits, SharedByConnections
from flymq.gateways.listener import Gateway, Listener, ListenerLimits
from flymq.gateways.native.connection import speaks_native
from flymq.gateways.rest.http.connection import speaks_http
from flymq.host.clock import SystemClock
from flymq.host.network import SystemNetwork
from flymq.host.tasks import Tasks
from flymq.wire.first_bytes import Speaks
from flymq.wire.kafka.framing import speaks_kafka


class Echo(Connection):
    """The simplest protocol: it begins with an exclamation mark, and says everything back."""

    protocol = "echo"

    def get_buffer(self, sizehint: int) -> bytearray:
        self._received = bytearray(max(sizehint, 100))
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        self.send([bytes(self._received[:nbytes])])


def speaks_echo(first: bytes) -> Speaks:
    return Speaks.YES if first.startswith(b"!") else Speaks.NO


@asynccontextmanager
async def listening(
    limits: ListenerLimits,
    tls: ssl.SSLContext | None = None,
    spoken: Mapping[str, Callable[[bytes], Speaks]] = MappingProxyType({"echo": speaks_echo}),
) -> AsyncIterator[tuple[Listener, int]]:
    shared = SharedByConnections(SystemClock(), BufferBudget(1 << 20), ConnectionLimits(), Requests())
    tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error}"))
    gateways = [Gateway(name, speaks, lambda: Echo(shared)) for name, speaks in spoken.items()]
    listener = Listener(gateways, shared, limits, SystemNetwork(), tasks, tls)
    try:
        yield listener, await listener.open("127.0.0.1", 0, 100)
    finally:
        await listener.close(within_s=1)
        await tasks.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # it is a number, and nobody tells when it changes
            await asyncio.sleep(0.001)


async def ends(read: Awaitable[bytes]) -> bool:
    """Tell whether the other side hangs up before saying anything."""
    async with asyncio.timeout(10):
        try:
            return await read == b""
        except ConnectionError:
            return True


async def test_a_connection_that_has_said_nothing_yet_counts_for_its_address() -> None:
    async with listening(ListenerLimits(connections_per_ip_max=2)) as (listener, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(lambda: listener.connections == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await ends(reader.read(1))
        assert listener.refused == 1
        for _, other in (*silent, (reader, writer)):
            other.close()
        await until(lambda: listener.connections == 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)  # there is room again
        writer.write(b"!")
        assert await reader.readexactly(1) == b"!"
        writer.close()


async def test_a_connection_within_its_tls_handshake_counts(server_tls: ssl.SSLContext) -> None:
    async with listening(ListenerLimits(connections_max=1), server_tls) as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16")
        await until(lambda: listener.connections == 1)
        reader, other = await asyncio.open_connection("127.0.0.1", port)
        assert await ends(reader.read(1))
        writer.close()
        other.close()
        await until(lambda: listener.connections == 0)


async def test_who_says_nothing_after_the_tls_handshake_is_sent_away(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with listening(ListenerLimits(first_bytes_timeout_s=0.5), server_tls) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_tls)
        assert listener.connections == 1
        assert await ends(reader.read(1))
        await until(lambda: listener.connections == 0)
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_tls)
        writer.write(b"!")
        assert await reader.readexactly(1) == b"!"
        assert listener.connections == 1
        writer.close()
        await until(lambda: listener.connections == 0)


async def test_what_no_protocol_speaks_is_sent_away_and_forgotten(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with listening(ListenerLimits(connections_per_ip_max=1), server_tls) as (listener, port):
        for tls in (None, client_tls, None):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writer.write(b"?")
            assert await ends(reader.read(1))
            writer.close()
            await until(lambda: listener.connections == 0)
        assert listener.refused == 0


async def test_closing_ends_a_handshake_too(server_tls: ssl.SSLContext) -> None:
    async with listening(ListenerLimits(), server_tls) as (listener, port):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"\x16")
        await until(lambda: listener.connections == 1)
    assert listener.connections == 0
    client.close()


SPOKEN = {"native": speaks_native, "http": speaks_http, "kafka": speaks_kafka}


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(
    ("protocol", "sent"),
    [
        ("native", b"\xfb\x01\x01\0\0\0\x01\x80"),
        ("http", b"POST / HTTP/1.1\r\n\r\n"),
        ("kafka", b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff"),
    ],
)
async def test_first_bytes_that_come_one_by_one_are_understood(
    protocol: str, sent: bytes, is_encrypted: bool, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async with listening(ListenerLimits(), server_tls, SPOKEN) as (listener, port):
        tls = client_tls if is_encrypted else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        for byte in sent:
            writer.write(bytes([byte]))
            for _ in range(5):  # turns of the loop, in which the listener gets this byte alone
                await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert await reader.readexactly(len(sent)) == sent
        assert listener.accepted == {protocol: 1}
        writer.close()


@pytest.mark.parametrize("first", [b"PO", b"\0\0\0"])
async def test_who_does_not_go_on_after_a_beginning_is_sent_away(first: bytes) -> None:
    async with listening(ListenerLimits(first_bytes_timeout_s=0.2), spoken=SPOKEN) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first)
        assert await ends(reader.read(1))
        await until(lambda: listener.connections == 0)
        writer.close()


@pytest.mark.parametrize("sent", [b"POLL", b"\0\0\0\x0a\x7f\xff", b"\xff"])
async def test_who_speaks_like_nobody_in_the_end_is_sent_away_at_once(sent: bytes) -> None:
    async with listening(ListenerLimits(), spoken=SPOKEN) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in sent:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert await ends(reader.read(1))
        await until(lambda: listener.connections == 0)
        writer.close()


class Clumsy(Echo):
    """A protocol with a mistake in it."""

    protocol = "clumsy"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raise RuntimeError("a mistake")

    def connection_lost(self, exc: Exception | None) -> None:
        raise RuntimeError("another one")


async def test_a_protocol_that_fails_on_its_first_byte_does_not_keep_the_broker_from_stopping() -> None:
    shared = SharedByConnections(SystemClock(), BufferBudget(1 << 20), ConnectionLimits(), Requests())
    tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error}"))
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: None)  # the loop reports what `connection_lost` raises
    gateway = Gateway("clumsy", speaks_echo, lambda: Clumsy(shared))
    listener = Listener([gateway], shared, ListenerLimits(), SystemNetwork(), tasks)
    port = await listener.open("127.0.0.1", 0, 100)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"!")
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    assert listener.connections == 0
    await asyncio.wait_for(listener.close(within_s=0.1), 10)
    await tasks.close()


async def test_a_listener_that_drains_waits_for_requests_in_flight_and_serves_others() -> None:
    async with listening(ListenerLimits()) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"!")
        assert await reader.readexactly(1) == b"!"
        await listener.drain(within_s=10)
        writer.write(b"!")
        assert await reader.readexactly(1) == b"!"
        writer.close()
