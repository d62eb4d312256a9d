"""A plain socket that speaks Kafka's protocol in bytes made by kio."""

from __future__ import annotations

import io
import socket
from struct import Struct
from typing import Any, Self

from kio.serial import entity_reader, entity_writer

_LENGTH = Struct(">i")


class RawKafka:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Any, response: type) -> Any:
        self.send(request)
        return self.receive(response)

    def send(self, request: Any) -> None:
        self._correlation_id += 1
        header = request.__header_schema__
        named: dict[str, Any] = {
            "request_api_key": request.__api_key__,
            "request_api_version": request.__version__,
            "correlation_id": self._correlation_id,
            "client_id": "raw",
        }
        self.send_frame(_encode(header(**named)) + _encode(request))

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(_LENGTH.pack(len(frame)) + frame)

    def receive(self, response: Any) -> Any:
        frame = self.receive_frame()
        _, size = entity_reader(response.__header_schema__)(frame, 0)
        message, rest = entity_reader(response)(frame, size)
        assert size + rest == len(frame)
        return message

    def receive_frame(self) -> bytes:
        return self._exactly(_LENGTH.unpack(self._exactly(4))[0])

    def is_closed(self) -> bool:
        return self.socket.recv(1) == b""

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            received = self.socket.recv(count - len(data))
            if not received:
                raise ConnectionError("the broker closed the connection")
            data += received
        return data


def _encode(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()
