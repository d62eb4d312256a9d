"""Topic patterns: RE2 regular expressions, as in Kafka's brokers, matched against the whole name.

Clients send a pattern and the broker runs it, so no pattern may block the broker. RE2 matches in linear time, whatever
the pattern; the limits here bound the cost to compile, to keep and to match it.
"""

from __future__ import annotations

from typing import Any

import re2

from flymq.model.errors import InvalidTopicPattern

PATTERN_LENGTH_MAX = 1_000
_PROGRAM_SIZE_MAX = 2_000
"""Instructions of the compiled pattern: a character is one, `.` is eight. Any list of names fits."""
_MEMORY_BYTES_MAX = 1 << 20
"""Memory of RE2 for one pattern. With less, or with larger programs, its state cache does not fit, and a hostile
pattern takes a hundred times as long to match a name."""


class TopicPattern:
    """A compiled pattern. Raises `InvalidTopicPattern` if it is invalid."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise InvalidTopicPattern(
                f"a pattern has at most {PATTERN_LENGTH_MAX} characters, this one has {len(text)}"
            )
        self.text = text
        self._compiled = _compile(text)

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None


def _compile(text: str) -> Any:
    if "\\p" in text.lower():
        # Their tables are large: a thousand characters of them take RE2 40 ms. Topic names are ASCII.
        raise _invalid(text, "Unicode classes (\\p) are not supported")
    try:
        compiled = re2.compile(text, _options())
    except re2.error as error:
        raise _invalid(text, error.args[0].decode(errors="replace")[:100]) from None
    except UnicodeEncodeError:
        raise _invalid(text, "it is not valid Unicode") from None
    if compiled.programsize > _PROGRAM_SIZE_MAX:
        raise _invalid(text, "pattern too large")
    return compiled


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES_MAX
    options.never_capture = True  # only whether it matches is needed
    options.log_errors = False  # they would go to stderr, not to the log
    return options


def _invalid(text: str, problem: str) -> InvalidTopicPattern:
    return InvalidTopicPattern(f"the pattern {text[:100]!r}: {problem}")
