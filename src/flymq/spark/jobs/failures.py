"""Find FlyMQ's own error in what Spark makes of it.

An error in a task or in a source travels as text: a traceback of the Python process, in a message of the JVM, in an
exception of the driver. Its last line still names the class and says what is wrong.
"""

from __future__ import annotations

import re

from flymq.model.errors import FlyMQError, PipelineFailed

_NAMED = re.compile(r"^(?:[^\n]*?\s)?flymq\.model\.errors\.\w+\.(\w+): ([^\n]+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\] ")


def failure_of(error: BaseException) -> FlyMQError:
    """Return FlyMQ's error behind an exception of Spark, or a PipelineFailed with the first line of it."""
    if isinstance(error, FlyMQError):
        return error
    text = str(error)
    for name, message in reversed(_NAMED.findall(text)):
        if (kind := _kinds().get(name)) is not None:
            return _apart(kind, message.strip())
    return PipelineFailed(first_sentence(error))


def _apart(kind: type[FlyMQError], text: str) -> FlyMQError:
    """Return the error with its hint apart again: on its way through Spark it was a part of the text."""
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
    """Return what Spark says is wrong, without the plan and the traceback that follow."""
    line = str(error).strip().partition("\n")[0]
    return _CONDITION.sub("", line).partition(" SQLSTATE:")[0] or type(error).__name__
