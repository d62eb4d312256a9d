"""Minimal asyncio servers: the limits that FlyMQ is compared with.

python -m benchmarks.bare_servers echo          echoes the received bytes
python -m benchmarks.bare_servers produce DIR   splits requests, writes them to a file, responds with fixed bytes
python -m benchmarks.bare_servers fetch DIR     splits requests, responds to each with 1 MB of a file by sendfile
"""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import socket
import sys
import tempfile
from struct import Struct
from typing import cast

_HEADER = Struct(">BBBI")
ANSWER = b"\xfb\x01\x87\x00\x00\x00\x30" + bytes(0x30)
"""The size of FlyMQ's response to one batch for one partition."""
FETCHED_BYTES = 1 << 20
_PIECES = 64
"""Number of different responses: more than fit into the CPU cache."""


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Produce(asyncio.BufferedProtocol):
    """Reads into one buffer, writes each complete request to the file with one call, responds at once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = memoryview(bytearray(4 << 20))
        self._used = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._used :]

    def buffer_updated(self, nbytes: int) -> None:
        end = self._used + nbytes
        position = answered = 0
        while end - position >= 7:
            size = 7 + _HEADER.unpack_from(self._buffer, position)[3]
            if position + size > end:
                break
            os.write(self._fd, self._buffer[position : position + size])
            position += size
            answered += 1
        if answered:
            self._transport.write(ANSWER * answered)
        if position:
            self._buffer[: end - position] = self._buffer[position:end]
        self._used = end - position


def send_files(directory: str) -> None:
    """Serve one connection after another: only sendfile and waiting for buffer space are measured."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(FETCHED_BYTES) * _PIECES)
        file.flush()
        positions = itertools.cycle(range(0, FETCHED_BYTES * _PIECES, FETCHED_BYTES))
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        while True:
            connection, _ = listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                while header := connection.recv(_HEADER.size, socket.MSG_WAITALL):
                    connection.recv(_HEADER.unpack(header)[3], socket.MSG_WAITALL)
                    connection.sendall(_HEADER.pack(0xFB, 1, 0x88, FETCHED_BYTES))
                    _send_file(connection, file.fileno(), next(positions))


def _send_file(connection: socket.socket, file: int, position: int) -> None:
    """Fill the socket's buffer, then wait until much of it is free: a blocking sendfile would wake up too often."""
    connection.setblocking(False)
    end = position + FETCHED_BYTES
    while position < end:
        try:
            position += os.sendfile(connection.fileno(), file, position, end - position)
        except BlockingIOError:
            select.select([], [connection], [])
    connection.setblocking(True)


async def _serve(kind: str, directory: str) -> None:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryFile(dir=directory) as file:
        factory = Echo if kind == "echo" else lambda: Produce(file.fileno())
        listening = await loop.create_server(factory, "127.0.0.1", 0)
        print(listening.sockets[0].getsockname()[1], flush=True)
        await listening.serve_forever()


def main(kind: str, directory: str = ".") -> None:
    if kind == "fetch":
        send_files(directory)
    else:
        asyncio.run(_serve(kind, directory))


if __name__ == "__main__":
    main(*sys.argv[1:])
