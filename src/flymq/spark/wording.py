"""Errors as Spark shows them: it prints the text of an exception and nothing else, so the hint goes into the text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flymq.model.errors import FlyMQError


@contextmanager
def hints_in_errors() -> Iterator[None]:
    """Let errors out with what to do about them, and without the way they took through this package."""
    try:
        yield
    except FlyMQError as error:
        raise type(error)(f"{error.message.rstrip('.')}. {error.hint}", hint="") from None
