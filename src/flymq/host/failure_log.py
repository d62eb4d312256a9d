"""Log a failure that repeats once, and once that it is over."""

from __future__ import annotations

import logging

from flymq.model.errors import FlyMQError


class FailureLog:
    """The failures of one kind of work on many things."""

    def __init__(self, logger: logging.Logger, text: str) -> None:
        """`text` says what fails, with `%s` for the thing."""
        self._logger = logger
        self._text = text
        self._failing: dict[str, str] = {}

    def failed(self, name: str, error: Exception) -> None:
        """Log it, unless the last attempt on this thing failed in the same way. What a retry can help is a warning."""
        said = str(error) if isinstance(error, FlyMQError) else repr(error)
        if self._failing.get(name) == said:
            return
        self._failing[name] = said
        trace = None if isinstance(error, FlyMQError) else error  # not expected, so the traceback is needed
        level = logging.WARNING if isinstance(error, FlyMQError) and error.retriable else logging.ERROR
        self._logger.log(level, f"{self._text}: %s", name, said, exc_info=trace)

    def succeeded(self, name: str) -> None:
        if self._failing and self._failing.pop(name, None) is not None:
            self._logger.info(f"{self._text}: it works again", name)
