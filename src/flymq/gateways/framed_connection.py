"""A connection of a protocol whose requests are frames with a length, and whose clients may have to log in."""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic

from flymq.broker.service.service import Service
from flymq.gateways.connection import Connection, SharedByConnections
from flymq.gateways.deadlines import Unfinished
from flymq.wire.framing import FrameT, StreamCutter


class FramedConnection(Connection, Generic[FrameT]):
    """Receives frames. A protocol implements `serve_all`."""

    def __init__(self, service: Service, shared: SharedByConnections, cutter: StreamCutter[FrameT]) -> None:
        super().__init__(shared)
        self.service = service
        self.is_logged_in = not service.access.is_required
        self.is_logging_in = False
        self._cutter = cutter
        cutter.body_bytes_max = self.bytes_max_now

    def serve_all(self, frames: Generator[FrameT]) -> None:
        """Serve the requests in these frames, as many as a turn takes."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._cutter.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.serve_all(self._cutter.buffer_updated(nbytes))

    def serve_rest(self) -> None:
        self.serve_all(self._cutter.resume())

    def no_longer_busy(self) -> None:
        """A large request is served: go on with those behind it."""
        if self.is_busy:
            self.is_busy = False
            self.reserve(self._cutter.wanted_bytes)
            self._reconsider()

    @property
    def unfinished(self) -> Unfinished | None:
        cutter = self._cutter
        return None if cutter.is_between_frames else Unfinished(cutter.begun, cutter.received_bytes)

    @property
    def must_log_in(self) -> bool:
        return not self.is_logged_in

    def logged_in(self, principal: str) -> None:
        super().logged_in(principal)
        self.is_logged_in = True
        self._cutter.body_bytes_max = self.bytes_max_now
