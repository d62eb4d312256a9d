"""The other brokers, as coordinators need them: one request, one response."""

from __future__ import annotations

from typing import Protocol, TypeVar

from flymq.wire.native.messages.fields import Message

M = TypeVar("M", bound=Message)


class Peers(Protocol):
    async def request(self, broker_id: int, request: Message, answer: type[M], *, timeout_s: float) -> M:
        """Send a request to a broker, once. Raises its error, or that it cannot be reached."""
