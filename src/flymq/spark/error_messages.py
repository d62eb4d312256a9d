"""FlyMQ's errors on their way through Spark.

An error in a task or a source reaches the driver as text: a Python traceback, inside a message of the JVM, inside an
exception of the driver. Spark shows that text and nothing else, so `hints_in_errors` adds the hint to it; its last line
names the class and has the message, so `failure_of` can turn it back into the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from flymq.model.errors import FlyMQError, PipelineFailed

_NAMED = re.compile(r"^(?:[^\n]*?\s)?flymq\.model\.errors\.\w+\.(\w+): ([^\n]+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\] ")


@contextmanager
def hints_in_errors() -> Iterator[None]:
    """Add the hint to the message of an error, and remove the traceback through this package."""
    try:
        yield
    except FlyMQError as error:
        raise type(error)(f"{error.message.rstrip('.')}. {error.hint}", hint="") from None


def failure_of(error: BaseException) -> FlyMQError:
    """Return the FlyMQ error inside an exception of Spark, or a PipelineFailed with its first line."""
    if isinstance(error, FlyMQError):
        return error
    text = str(error)
    for name, message in reversed(_NAMED.findall(text)):
        if (kind := _kinds().get(name)) is not None:
            return _split(kind, message.strip())
    return PipelineFailed(first_sentence(error))


def _split(kind: type[FlyMQError], text: str) -> FlyMQError:
    """Split the text into message and hint again."""
    if kind.hint and text.endswith(kind.hint):
        return kind(text.removesuffix(kind.hint).rstrip(". "))
    return kind(text, hint="")


def _kinds() -> dict[str, type[FlyMQError]]:
    found: dict[str, type[FlyMQError]] = {}
    pending: list[type[FlyMQError]] = [FlyMQError]
    while pending:
        kind = pending.pop()
        found[kind.__name__] = kind
        pending += kind.__subclasses__()
    return found


def first_sentence(error: BaseException) -> str:
    """Return Spark's error message without its error class, the query plan and the traceback."""
    line = str(error).strip().partition("\n")[0]
    return _CONDITION.sub("", line).partition(" SQLSTATE:")[0] or type(error).__name__
