"""Keys and values between JSON and the bytes of a record.

    encoding   in JSON                             in the record
    json       any JSON value                      its text, as it was sent
    string     "text"                              the text in UTF-8
    base64     "dGV4dA=="                          the bytes

`null` is no key or no value in each of them. In responses a value that cannot be shown in the requested encoding has
the next one that can represent it, and the response says so.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any

import msgspec

from flymq.gateways.rest.schema.shapes import Encoding, HeaderShape, RecordShape
from flymq.model.errors import InvalidRequest
from flymq.record.record import Header, Record


def to_bytes(raw: msgspec.Raw | msgspec.UnsetType, encoding: Encoding, field: str) -> bytes | None:
    """Return the bytes of a JSON value."""
    if raw is msgspec.UNSET:
        return None
    text = bytes(raw)
    if text == b"null":
        return None
    if encoding is Encoding.JSON:
        return _checked_json(text, field)
    if encoding is Encoding.STRING and text[0] == 0x22 and text.isascii() and b"\\" not in text:
        return text[1:-1]
    try:
        string = msgspec.json.decode(text, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidRequest(f"the {field} is not a string, but its encoding is {encoding.value!r}") from None
    return string_to_bytes(string, encoding, field)


def string_to_bytes(text: str, encoding: Encoding, field: str) -> bytes:
    """Return the bytes of a string, or of its base64 decoding."""
    if encoding is not Encoding.BASE64:
        return text.encode()
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError):
        raise InvalidRequest(f"the {field} is not base64") from None


def _checked_json(text: bytes, field: str) -> bytes:
    """Check the UTF-8 of a raw JSON value: the parser has only checked its structure."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(f"the {field} is not UTF-8") from None
    return text


def to_headers(headers: list[HeaderShape]) -> list[Header]:
    return [
        (header.name, None if header.value is None else string_to_bytes(header.value, header.encoding, "header"))
        for header in headers
    ]


def show(data: bytes | None, encoding: Encoding) -> tuple[Any, Encoding]:
    """Return the JSON value of these bytes, and its encoding."""
    if data is None:
        return None, encoding
    if encoding is Encoding.JSON:
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            encoding = Encoding.STRING
        else:
            # Unchanged, unless it would break a line of NDJSON or mean no value.
            if data == b"null":
                encoding = Encoding.STRING
            else:
                return (value if b"\n" in data or b"\r" in data else msgspec.Raw(data)), encoding
    if encoding is Encoding.STRING:
        try:
            return data.decode(), encoding
        except UnicodeDecodeError:
            encoding = Encoding.BASE64
    return b64encode(data).decode(), encoding


def show_record(record: Record, partition: int, encoding: Encoding, key_encoding: Encoding) -> RecordShape:
    value, value_encoding = show(record.value, encoding)
    key, key_encoding = show(record.key, key_encoding)
    return RecordShape(
        partition,
        record.offset,
        record.timestamp_ms,
        key,
        value,
        value_encoding,
        key_encoding,
        [_show_header(*header) for header in record.headers],
    )


def _show_header(name: str, value: bytes | None) -> HeaderShape:
    shown, encoding = show(value, Encoding.STRING)
    return HeaderShape(name, shown, encoding)
