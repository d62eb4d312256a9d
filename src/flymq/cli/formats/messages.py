"""Text format of messages: the input of `produce` and the output of `consume`.

As JSON, one object per line:

    {"topic": "orders", "partition": 2, "offset": 17, "timestamp": 1767225600000,
     "key": "alice", "value": "hi", "headers": [["trace", "7f"]]}

Bytes that are not UTF-8 are {"base64": "…"} instead of a string. `produce --json` reads what `consume -o json` prints:
it uses key, value, headers and timestamp, and ignores topic, partition and offset.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from flymq.client.records import ConsumerRecord
from flymq.record.record import Header

Column = Callable[[ConsumerRecord], bytes]

_NULL = b"null"
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160)) if chr(code) not in "\t\n"}


class Message(NamedTuple):
    """A message to produce."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp: int | None = None


# --- output ---------------------------------------------------------------------------------------------------------


def to_json(record: ConsumerRecord) -> bytes:
    """Format a record as one line of JSON."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json_text(record.key),
        "value": _json_text(record.value),
        "headers": [[name, _json_text(value)] for name, value in record.headers],
    }
    return msgspec.json.encode(fields) + b"\n"


def _json_text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _time(record: ConsumerRecord) -> bytes:
    return datetime.fromtimestamp(record.timestamp / 1000).isoformat(" ", "milliseconds").encode()


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


COLUMNS: dict[str, Column] = {
    "time": _time,
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "key": lambda record: _NULL if record.key is None else record.key,
    "headers": _headers,
}
"""The columns that can be printed before the value, in this order."""


def text_of(columns: Sequence[Column]) -> Column:
    """Return a function that formats a record as a line: the columns, then the value, separated by tabs."""
    if not columns:
        return lambda record: (_NULL if record.value is None else record.value) + b"\n"

    def to_text(record: ConsumerRecord) -> bytes:
        value: bytes = _NULL if record.value is None else record.value
        return b"\t".join([*(column(record) for column in columns), value]) + b"\n"

    return to_text


def to_raw(record: ConsumerRecord) -> bytes:
    """Return the bytes of the value only."""
    value: bytes = record.value or b""
    return value


def for_terminal(line: bytes) -> bytes:
    """Escape control characters, so that a message cannot manipulate the terminal."""
    return line.decode(errors="backslashreplace").translate(_ESCAPES).encode()


# --- input ----------------------------------------------------------------------------------------------------------


def from_json(line: bytes) -> Message:
    """Parse a message from a line of JSON; `ValueError` if it is invalid.

    A value that is neither a string nor null is written as JSON.
    """
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        headers = [(str(name), _bytes(value)) for name, value in fields.get("headers") or ()]
        timestamp = fields.get("timestamp")
        if timestamp is not None and type(timestamp) is not int:
            raise ValueError("`timestamp` must be an integer, in milliseconds since 1970")
        return Message(_bytes(fields.get("key")), _bytes(fields["value"]), headers, timestamp)
    except KeyError:
        raise ValueError("the field `value` is missing") from None
    except (msgspec.DecodeError, TypeError) as error:
        raise ValueError(str(error)) from None


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    return msgspec.json.encode(value)
