"""The base class of all errors."""

from __future__ import annotations

from typing import ClassVar

_MESSAGE_LENGTH_MAX = 4_000
"""In characters: a message can quote what a client has sent, and in Kafka's protocol it has at most 32,767 bytes."""


class FlyMQError(Exception):
    """An expected error; `code` identifies it, `hint` says what to do."""

    code: ClassVar[str] = "UNKNOWN"
    retriable: ClassVar[bool] = False
    hint: str = ""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        if len(message) > _MESSAGE_LENGTH_MAX:
            message = f"{message[:_MESSAGE_LENGTH_MAX]}…"
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0].rstrip("."))
        if hint is not None:
            self.hint = hint

    @property
    def message(self) -> str:
        return str(self.args[0])
