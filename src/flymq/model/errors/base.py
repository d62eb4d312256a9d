"""The base class of all errors."""

from __future__ import annotations

from typing import ClassVar


class FlyMQError(Exception):
    """An expected error; `code` identifies it, `hint` says what to do."""

    code: ClassVar[str] = "UNKNOWN"
    retriable: ClassVar[bool] = False
    hint: str = ""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0].rstrip("."))
        if hint is not None:
            self.hint = hint

    @property
    def message(self) -> str:
        return str(self.args[0])
