"""A connection that speaks Kafka's protocol over any network, in bytes made by kio: for what the SDK has no word."""

from __future__ import annotations

import asyncio
import io
from contextlib import suppress
from struct import Struct
from typing import Any

from kio.serial import entity_reader, entity_writer

from flymq.host.network import Network
from flymq.model.errors import ConnectionLost, RequestTimedOut

_LENGTH = Struct(">i")


class KafkaLink:
    """Asks one question at a time, and connects when it must."""

    def __init__(self, network: Network, host: str, port: int, client_id: str) -> None:
        self._network = network
        self._address = (host, port)
        self._client_id = client_id
        self._stream: _Stream | None = None
        self._correlation_id = 0

    async def ask(self, request: Any, response: Any, timeout_s: float = 2.0) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                if self._stream is None:
                    self._stream = await self._network.connect(_Stream, *self._address, None)
                self._send(self._stream, request)
                frame = await self._stream.frames.get()
        except TimeoutError:
            self.close()
            raise RequestTimedOut("no answer to a Kafka request") from None
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if frame is None:
            self.close()
            raise ConnectionLost("the Kafka connection was lost")
        _, size = entity_reader(response.__header_schema__)(frame, 0)
        return entity_reader(response)(frame, size)[0]

    def close(self) -> None:
        if self._stream is not None and self._stream.transport is not None:
            self._stream.transport.abort()
        self._stream = None

    def _send(self, stream: _Stream, request: Any) -> None:
        self._correlation_id += 1
        header: dict[str, Any] = {
            "request_api_key": request.__api_key__,
            "request_api_version": request.__version__,
            "correlation_id": self._correlation_id,
            "client_id": self._client_id,
        }
        frame = _encode(request.__header_schema__(**header)) + _encode(request)
        assert stream.transport is not None
        stream.transport.write(_LENGTH.pack(len(frame)) + frame)


class _Stream(asyncio.Protocol):
    """Frames as they come; None at the end."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and len(self._received) - 4 >= (size := _LENGTH.unpack(self._received[:4])[0]):
            self.frames.put_nowait(self._received[4 : 4 + size])
            self._received = self._received[4 + size :]

    def connection_lost(self, error: Exception | None) -> None:
        with suppress(asyncio.QueueFull):
            self.frames.put_nowait(None)


def _encode(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()
