"""Connections that speak HTTP/1.1: raw bytes to a real port, a small application behind it."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trustme
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from flymq.broker.service.requests import Requests
from flymq.gateways.budget import BufferBudget
from flymq.gateways.connection import ConnectionLimits, SharedByConnections
from flymq.gateways.listener import Gateway, Listener, ListenerLimits
from flymq.gateways.rest.http.connection import BODY_BYTES_AHEAD, HttpConnection, http_connections, speaks_http
from flymq.host.clock import SystemClock
from flymq.host.network import SystemNetwork
from flymq.host.tasks import Tasks
from flymq.wire.http.requests import RequestHead

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


@dataclass
class Site:
    """What listens, and what it was asked."""

    listener: Listener
    shared: SharedByConnections
    port: int = 0
    asked: list[str] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)

    async def dial(self, tls: ssl.SSLContext | None = None) -> Client:
        self.clients.append(Client(*await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)))
        return self.clients[-1]


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes]:
        """Return status and body of the next answer; its length must be given."""
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in head.split(b"\r\n"):
                if line.startswith(b"content-length: "):
                    length = int(line[16:])
            return int(head.split()[1]), await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Return everything up to the end of the connection."""
        async with asyncio.timeout(10):
            return await self.reader.read()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Go without a word, which is more than to say nothing more."""
        no_linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        self.writer.transport.abort()


async def reply(send: Send, body: bytes, status: int = 200) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        body, more = body + message["body"], message["more_body"]
    return body


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the path and the body."""
    await reply(send, scope["path"].encode() + b" " + await read_body(receive))


Make = Callable[[ASGIApp, SharedByConnections, Tasks], Callable[[], HttpConnection]]


@asynccontextmanager
async def serving(
    app: ASGIApp,
    limits: ConnectionLimits | None = None,
    tls: ssl.SSLContext | None = None,
    make: Make = http_connections,
    idle_timeout_s: float = 600.0,
) -> AsyncIterator[Site]:
    shared = SharedByConnections(SystemClock(), BufferBudget(1 << 20), limits or ConnectionLimits(), Requests())
    tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error}"))

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        site.asked.append(scope["path"])
        await app(scope, receive, send)

    gateway = Gateway("http", speaks_http, make(noting, shared, tasks))
    listener = Listener([gateway], shared, ListenerLimits(idle_timeout_s=idle_timeout_s), SystemNetwork(), tasks, tls)
    site = Site(listener, shared)
    site.port = await listener.open("127.0.0.1", 0, 100)
    try:
        yield site
    finally:
        for client in site.clients:
            client.close()
        await listener.close(within_s=1)
        await tasks.close()
        assert shared.budget.used == 0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # it is a number, and nobody tells when it changes
            await asyncio.sleep(0.001)


# --- requests and answers -------------------------------------------------------------------------------------------


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with serving(echo) as site:
        client = await site.dial()
        for number in range(3):
            client.send(b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab" % number)
            assert await client.answer() == (200, b"/%d ab" % number)


async def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    running, most = 0, 0

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        await reply(send, scope["path"].encode())

    async with serving(slow) as site:
        client = await site.dial()
        client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(200)))
        for number in range(200):
            assert await client.answer() == (200, b"/%d" % number)
        assert most == 1


async def test_many_pipelined_requests_wait_in_the_client() -> None:
    may_go = asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        await may_go.wait()
        await reply(send, b"")

    async with serving(waiting) as site:
        client = await site.dial()
        request, count = GET + b"X: " + b"x" * 10_000 + b"\r\n\r\n", 3000
        client.send(request * count)  # 30 MB
        await until(lambda: site.shared.budget.used > 0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert site.shared.budget.used < 1 << 20
        assert len(site.asked) == 1
        may_go.set()
        for _ in range(count):
            assert (await client.answer())[0] == 200


async def test_chunked_bodies_are_put_together() -> None:
    async with serving(echo) as site:
        client = await site.dial()
        client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert await client.answer() == (200, b"/ abcde")


async def test_head_and_body_of_an_answer_leave_together() -> None:
    async with serving(echo) as site:
        with socket.create_connection(("127.0.0.1", site.port)) as client:
            client.sendall(GET + b"\r\n")
            received = await asyncio.to_thread(client.recv, 1 << 16)
    assert received == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n/ "


async def test_a_stream_is_sent_in_chunks_to_1_1_and_up_to_the_end_to_1_0() -> None:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with serving(stream) as site:
        client = await site.dial()
        client.send(GET + b"\r\n" + GET + b"Connection: close\r\n\r\n")
        first, second, end = (await client.rest()).split(b"3\r\nabc\r\n0\r\n\r\n")
        assert first == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        assert second == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        assert end == b""
        client = await site.dial()
        client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert await client.rest() == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc"


async def test_a_client_of_1_0_can_keep_its_connection() -> None:
    async with serving(echo) as site:
        client = await site.dial()
        for _ in range(2):
            client.send(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
            assert await client.answer() == (200, b"/ ")
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.rest()).endswith(b"connection: close\r\n\r\n/ ")


async def test_a_request_that_wants_to_be_the_last_is_the_last() -> None:
    async with serving(echo) as site:
        client = await site.dial()
        client.send(GET + b"Connection: close\r\n\r\n" + GET + b"\r\n")
        assert await client.rest() == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n/ "
        assert site.asked == ["/"]


async def test_a_client_is_told_to_go_on_when_its_body_is_wanted() -> None:
    async with serving(echo) as site:
        client = await site.dial()
        client.send(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await client.answer() == (100, b"")
        client.send(b"ab")
        assert await client.answer() == (200, b"/ ab")
        client.send(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab")  # it did not wait
        assert await client.answer() == (200, b"/ ab")


async def test_a_client_whose_body_is_not_wanted_is_not_told_to_go_on() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, b"no", 403)

    async with serving(refuse) as site:
        client = await site.dial()
        client.send(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n")
        client.close()
        await until(lambda: site.listener.connections == 0)


async def test_a_body_that_nobody_reads_is_thrown_away_and_the_connection_goes_on() -> None:
    async def ignore(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, scope["path"].encode())

    async with serving(ignore) as site:
        client = await site.dial()
        client.send(POST + b"Content-Length: 1000000\r\n\r\n")
        assert await client.answer() == (200, b"/")
        client.send(b"x" * 1_000_000 + b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await client.answer() == (200, b"/next")


async def test_an_upgrade_is_answered_as_if_nobody_had_asked() -> None:
    async with serving(echo) as site:
        client = await site.dial()
        client.send(GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n")
        assert await client.answer() == (200, b"/ ")
        client.send(POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab")
        assert await client.answer() == (200, b"/ ab")


async def test_a_connection_can_go_over_to_another_protocol() -> None:
    class Shouting(HttpConnection):
        is_shouting = False

        def upgrade(self, head: RequestHead) -> bool:
            assert head.upgrade == b"shouting"
            self.send([b"HTTP/1.1 101 Switching Protocols\r\n\r\n", self._reader.take_rest().upper()])
            self.is_shouting = True
            return True

        def buffer_updated(self, nbytes: int) -> None:
            if self.is_shouting:
                self.send([bytes(self.shared.scratch[:nbytes]).upper()])
            else:
                super().buffer_updated(nbytes)

    def make(app: ASGIApp, shared: SharedByConnections, tasks: Tasks) -> Callable[[], HttpConnection]:
        return lambda: Shouting(shared, app, tasks)

    async with serving(echo, make=make) as site:
        client = await site.dial()
        client.send(GET + b"\r\n")
        assert await client.answer() == (200, b"/ ")
        client.send(GET + b"Connection: upgrade\r\nUpgrade: Shouting\r\n\r\nGET a")
        assert await client.answer() == (101, b"")
        assert await client.reader.readexactly(5) == b"GET A"
        client.send(b"bc\r\n\r\n")
        assert await client.reader.readexactly(6) == b"BC\r\n\r\n"


async def test_requests_are_served_inside_tls() -> None:
    authority = trustme.CA()
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_tls)
    client_tls = ssl.create_default_context()
    authority.configure_trust(client_tls)

    async def tell(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, scope["scheme"].encode())

    async with serving(tell, tls=server_tls) as site:
        client = await site.dial(client_tls)
        client.send(GET + b"\r\n" + GET + b"\r\n")
        assert [await client.answer(), await client.answer()] == [(200, b"https")] * 2
        client.send(b"GET nothing\r\n\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")


# --- what is no request ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 30\r\n\r\nabcGET /smuggled HTTP/1.1\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
        GET + b"A: b\r\n folded\r\n\r\n",
        GET + b"A b: c\r\n\r\n",
        GET + b"A: b\0c\r\n\r\n",
        GET + b"Host: y\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET nothing HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GETTING / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_answered_as_such_and_nothing_after_it_is_served(data: bytes) -> None:
    async with serving(echo) as site:
        client = await site.dial()
        client.send(b"GET /good HTTP/1.1\r\nHost: x\r\n\r\n" + data + b"GET /after HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await client.answer() == (200, b"/good ")
        refused = await client.rest()
        assert refused.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"\r\ncontent-type: application/problem+json\r\nconnection: close\r\n" in refused
        assert b'"code":"MALFORMED_HTTP"' in refused
        assert site.asked == ["/good"]
        client.close()
        await until(lambda: site.listener.connections == 0)


async def test_a_url_as_target_is_served() -> None:
    async with serving(echo) as site:
        client = await site.dial()
        client.send(b"GET http://broker:9092/a%20b?c HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await client.answer() == (200, b"/a b ")
        client.send(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await client.answer() == (200, b"* ")


async def test_a_body_that_breaks_off_in_the_middle_is_answered_as_such() -> None:
    told: list[str] = []

    async def take(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "http.request":
            told.append(message["body"].decode())
        told.append(message["type"])

    async with serving(take) as site:
        client = await site.dial()
        client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await until(lambda: told == ["abc"])
        client.send(b"no chunk\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
        await until(lambda: told == ["abc", "http.disconnect"])


async def test_who_sends_too_large_a_head_can_read_why_it_was_refused() -> None:
    async with serving(echo) as site:
        client = await site.dial()
        client.send(GET + b"A: " + b"x" * 2_000_000)  # much more than is read
        assert (await client.rest()).startswith(b"HTTP/1.1 431 ")
        client.close()
        await until(lambda: site.listener.connections == 0)


async def test_a_head_must_arrive_in_time() -> None:
    async with serving(echo, ConnectionLimits(handshake_timeout_s=0.05)) as site:
        client = await site.dial()
        client.send(GET)
        assert await client.rest() == b""
        client = await site.dial()
        client.send(GET + b"\r\n")
        assert await client.answer() == (200, b"/ ")
        client.send(b"GET /")
        assert await client.rest() == b""


async def test_what_is_left_of_a_body_after_the_answer_must_arrive_in_time() -> None:
    async def ignore(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, b"")

    async with serving(ignore, ConnectionLimits(handshake_timeout_s=0.05)) as site:
        client = await site.dial()
        client.send(POST + b"Content-Length: 10\r\n\r\nabc")
        assert await client.answer() == (200, b"")
        assert await client.rest() == b""


async def test_a_refused_client_that_does_not_go_is_sent_away() -> None:
    async with serving(echo, ConnectionLimits(handshake_timeout_s=0.05)) as site:
        client = await site.dial()
        client.send(b"GET nothing\r\n\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
        await until(lambda: site.listener.connections == 0)


# --- memory ---------------------------------------------------------------------------------------------------------


async def test_a_body_is_received_no_faster_than_it_is_taken() -> None:
    may_go = asyncio.Event()

    async def take(scope: Scope, receive: Receive, send: Send) -> None:
        await may_go.wait()
        await reply(send, str(len(await read_body(receive))).encode())

    async with serving(take) as site:
        for framing in (b"Content-Length: 20000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n1312d00\r\n"):
            may_go.clear()
            client = await site.dial()
            client.send(POST + framing + b"x" * 20_000_000 + (b"\r\n0\r\n\r\n" if b"chunked" in framing else b""))
            await until(lambda: site.shared.budget.used > BODY_BYTES_AHEAD)
            for _ in range(100):
                await asyncio.sleep(0)
            assert site.shared.budget.used <= BODY_BYTES_AHEAD + 2 * len(site.shared.scratch)
            may_go.set()
            assert await client.answer() == (200, b"20000000")
            assert site.shared.budget.used == 0
            client.close()


class GoneTransport:
    """A transport whose client is gone, which nobody has noticed yet."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


async def test_a_client_that_is_gone_when_its_request_is_refused_is_no_internal_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        for connection in made:
            connection._transport = GoneTransport(connection._transport)  # type: ignore[assignment, arg-type]
        await reply(send, b"too large", 413)

    def make(app: ASGIApp, shared: SharedByConnections, tasks: Tasks) -> Callable[[], HttpConnection]:
        create = http_connections(app, shared, tasks)

        def remember() -> HttpConnection:
            made.append(create())
            return made[-1]

        return remember

    made: list[HttpConnection] = []
    async with serving(refuse, make=make) as site:
        client = await site.dial()
        client.send(POST + b"Connection: close\r\nContent-Length: 20\r\n\r\n")
        await until(lambda: bool(made) and site.listener.connections == 0)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_stream_waits_while_its_client_does_not_read() -> None:
    sent, ended = 0, 0

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent, ended
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"50000000")]})
        for left in range(49, -1, -1):
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": left > 0})
            sent += 1
        ended += 1

    async with serving(stream) as site:
        with socket.create_connection(("127.0.0.1", site.port)) as idle:
            idle.sendall(GET + b"\r\n")
            await until(lambda: sent > 0)
            for _ in range(100):
                await asyncio.sleep(0)
            assert sent < 40
            assert site.shared.budget.used > 0  # what is not sent counts too
        await until(lambda: ended == 1)  # what it sends after that goes nowhere
        client = await site.dial()
        client.send(GET + b"\r\n")
        status, body = await client.answer()
        assert (status, len(body)) == (200, 50_000_000)


async def test_a_small_request_is_served_while_there_is_no_memory_left() -> None:
    async with serving(echo) as site:
        others = site.shared.budget.share("10.0.0.1")
        others.set_held(2 << 20)
        assert site.shared.budget.is_short
        client = await site.dial()
        client.send(GET + b"\r\n")
        assert await client.answer() == (200, b"/ ")
        others.set_held(0)


# --- the end --------------------------------------------------------------------------------------------------------


async def test_a_client_that_has_said_all_still_gets_its_answers() -> None:
    async with serving(echo) as site:
        client = await site.dial()
        client.send(POST + b"Content-Length: 2\r\n\r\nab" + b"GET /second HTTP/1.1\r\nHost: x\r\n\r\n")
        client.writer.write_eof()
        assert await client.answer() == (200, b"/ ab")
        assert await client.answer() == (200, b"/second ")
        assert await client.rest() == b""
        await until(lambda: site.listener.connections == 0)


async def test_a_client_that_has_said_all_is_sent_away_after_its_answer() -> None:
    may_go = asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        await may_go.wait()
        await reply(send, b"done")

    async with serving(waiting) as site:
        client = await site.dial()
        client.send(GET + b"\r\n")
        client.writer.write_eof()
        await until(lambda: site.asked == ["/"])
        may_go.set()
        assert await client.answer() == (200, b"done")
        assert await client.rest() == b""
        await until(lambda: site.listener.connections == 0)


async def test_an_application_is_told_that_its_client_is_gone() -> None:
    told: list[str] = []

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here", "more_body": True})
        told.append((await receive())["type"])
        await send({"type": "http.response.body", "body": b"nobody reads this", "more_body": False})

    async with serving(wait) as site:
        client = await site.dial()
        client.send(GET + b"\r\n")
        await client.reader.readuntil(b"here")
        client.reset()
        await until(lambda: told == ["http.disconnect"])
        await until(lambda: site.listener.connections == 0)


async def test_a_stream_ends_when_nobody_takes_it_any_more() -> None:
    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        async def lines() -> AsyncIterator[bytes]:
            while True:
                yield b"tick\n"
                await asyncio.sleep(0)

        await StreamingResponse(lines())(scope, receive, send)

    async with serving(endless) as site:
        client = await site.dial()
        client.send(GET + b"\r\n")
        await client.reader.readuntil(b"tick")
        client.close()
        await until(lambda: site.listener.connections == 0)


async def test_an_application_is_told_that_its_client_went_within_the_body() -> None:
    told: list[str] = []

    async def take(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "http.request":
            told.append(message["body"].decode())
        told.append(message["type"])

    async with serving(take) as site:
        client = await site.dial()
        client.send(POST + b"Content-Length: 100\r\n\r\nabc")
        await until(lambda: told == ["abc"])
        client.close()
        await until(lambda: told == ["abc", "http.disconnect"])


async def test_after_its_answer_an_application_is_told_that_nobody_is_there() -> None:
    told: list[str] = []

    async def linger(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, b"done")
        told.append((await receive())["type"])

    async with serving(linger) as site:
        client = await site.dial()
        client.send(GET + b"\r\n")
        assert await client.answer() == (200, b"done")
        await until(lambda: told == ["http.disconnect"])


async def test_closing_finishes_the_answer_and_begins_no_other() -> None:
    may_go = asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        await may_go.wait()
        await reply(send, scope["path"].encode())

    async with serving(waiting) as site:
        busy, quiet = await site.dial(), await site.dial()
        busy.send(GET + b"\r\n" + b"GET /second HTTP/1.1\r\nHost: x\r\n\r\n")
        quiet.send(b"GET /")
        await until(lambda: site.asked == ["/"] and site.listener.connections_by_protocol()["http"] == 2)
        closing = asyncio.ensure_future(site.listener.close(within_s=10))
        assert await quiet.rest() == b""
        may_go.set()
        assert await busy.rest() == b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n/"
        await closing
        assert site.asked == ["/"]


async def test_a_connection_without_requests_is_closed_after_a_while_but_none_that_waits_for_an_answer() -> None:
    may_go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/wait":
            await may_go.wait()
        await reply(send, b"")

    async with serving(app, idle_timeout_s=0.05) as site:
        waiting, idle = await site.dial(), await site.dial()
        waiting.send(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        idle.send(GET + b"\r\n")
        assert await idle.answer() == (200, b"")
        assert await idle.rest() == b""
        may_go.set()
        assert await waiting.answer() == (200, b"")


@pytest.mark.parametrize("begins", [False, True])
async def test_a_bug_of_the_application_ends_its_own_connection_only(
    begins: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/broken":
            if begins:
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
                await send({"type": "http.response.body", "body": b"ab", "more_body": True})
            raise ZeroDivisionError
        await reply(send, b"fine")

    async with serving(broken) as site:
        other, client = await site.dial(), await site.dial()
        client.send(b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n")
        if begins:
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await client.answer()
        else:
            assert (await client.rest()).startswith(b"HTTP/1.1 500 ")
        other.send(GET + b"\r\n")
        assert await other.answer() == (200, b"fine")
    assert "ZeroDivisionError" in caplog.text


async def test_an_application_that_forgets_its_answer_answers_with_an_error() -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    async with serving(silent) as site:
        client = await site.dial()
        client.send(GET + b"\r\n")
        assert b'"code":"INTERNAL_ERROR"' in await client.rest()
