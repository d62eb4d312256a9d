"""A TCP proxy between a client and a server that cuts, holds and forgets, when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class TcpProxy:
    """One address in front of another."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0
        self.connections = 0
        self.loses_answer_to: Callable[[bytes], bool] = lambda data: False
        """Decides by what a client sent whether its connection is cut when the server has answered."""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        self.cut()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def cut(self) -> None:
        """Close all connections."""
        for pair in list(self._pairs):
            for writer in pair:
                writer.transport.abort()

    def refuse(self) -> None:
        """Refuse new connections until `start`, and close those there are."""
        self._server.close()
        self.cut()

    def hold(self) -> None:
        """Let nothing through, and close nothing: as if the other machine had vanished."""
        self._flows.clear()

    def release(self) -> None:
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            target_reader, target_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, target_writer)
        self._pairs.add(pair)
        is_doomed = asyncio.Event()
        pumps = [
            asyncio.ensure_future(self._requests(reader, target_writer, is_doomed)),
            asyncio.ensure_future(self._answers(target_reader, writer, is_doomed)),
        ]
        self._pumps.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for each in pair:
            each.transport.abort()
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._pumps.difference_update(pumps)
        self._pairs.discard(pair)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_doomed: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            await self._flows.wait()
            if self.loses_answer_to(data):
                is_doomed.set()
            writer.write(data)

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_doomed: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            await self._flows.wait()
            if is_doomed.is_set():
                return
            writer.write(data)


@asynccontextmanager
async def proxy_of(host: str, port: int) -> AsyncIterator[TcpProxy]:
    proxy = TcpProxy(host, port)
    await proxy.start()
    try:
        yield proxy
    finally:
        proxy.release()
        await proxy.close()
