"""A stream of single messages for systems that take no batches: many under way, answers counted as they come."""

from __future__ import annotations

import socket
from collections.abc import Callable

from benchmarks.load import Stream
from benchmarks.peers.contender import UNDER_WAY

_CHUNK = 100


class Pipelined(Stream):
    """Sends the same message over and over. `answers` says how many more of them some received bytes answer."""

    def __init__(
        self, connection: socket.socket, message: bytes, messages: int, answers: Callable[[memoryview], int]
    ) -> None:
        super().__init__(connection)
        self._message = message
        self._chunk = message * _CHUNK
        self._messages = messages
        self._answers = answers
        self._sent = 0
        self._answered = 0

    @property
    def done(self) -> bool:
        return self._answered >= self._messages

    def begin(self) -> None:
        while self._sent < self._messages and self._sent - self._answered <= UNDER_WAY - _CHUNK:
            count = min(_CHUNK, self._messages - self._sent)
            self.send(self._chunk if count == _CHUNK else self._message * count)
            self._sent += count

    def feed(self, data: memoryview) -> None:
        self._answered += self._answers(data)
        self.begin()


class Counted(Stream):
    """Receives until so many messages came; `start` asks for them."""

    def __init__(
        self, connection: socket.socket, messages: int, start: bytes, arrived: Callable[[memoryview], int]
    ) -> None:
        super().__init__(connection)
        self._left = messages
        self._start = start
        self._arrived = arrived

    @property
    def done(self) -> bool:
        return self._left <= 0

    def begin(self) -> None:
        self.send(self._start)

    def feed(self, data: memoryview) -> None:
        self._left -= self._arrived(data)
