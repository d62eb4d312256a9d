"""The least a server on asyncio can do: the limits FlyMQ is measured against.

python -m benchmarks.bare_servers echo          sends back what it gets
python -m benchmarks.bare_servers produce DIR   cuts requests, writes their bytes to a file, answers as many bytes
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from struct import Struct
from typing import cast

_HEADER = Struct(">BBBI")
ANSWER = b"\xfb\x01\x87\x00\x00\x00\x30" + bytes(0x30)
"""As long as FlyMQ's answer to one batch for one partition."""


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Produce(asyncio.BufferedProtocol):
    """Reads into one buffer, writes each whole request to the file with one call, answers at once."""

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


async def _serve(kind: str, directory: str) -> None:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryFile(dir=directory) as file:
        factory = Echo if kind == "echo" else lambda: Produce(file.fileno())
        listening = await loop.create_server(factory, "127.0.0.1", 0)
        print(listening.sockets[0].getsockname()[1], flush=True)
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "."))
