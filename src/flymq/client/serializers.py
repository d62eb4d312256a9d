"""Serializers and deserializers.

A serializer is any function from a value to bytes; a deserializer any function from bytes to a value. `None` is never
passed to them: it stays null, which with a key is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from flymq.model.errors import DeserializationFailed, SerializationFailed

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


def to_bytes(value: Any) -> bytes:
    """The default serializer: bytes as they are, str as UTF-8."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationFailed(
        f"a {type(value).__name__} is neither bytes nor str",
        hint="Set `value_serializer`, for example flymq.serializers.to_json.",
    )


def to_text(value: Any) -> bytes:
    return str(value).encode()


def from_text(data: bytes) -> str:
    return data.decode()


to_json: Serializer = msgspec.json.Encoder().encode
from_json: Deserializer = msgspec.json.Decoder().decode
to_msgpack: Serializer = msgspec.msgpack.Encoder().encode
from_msgpack: Deserializer = msgspec.msgpack.Decoder().decode


def json_of(type_: Any) -> Deserializer:
    """Return a deserializer of JSON into a msgspec struct, dataclass, TypedDict or any other type msgspec checks."""
    return msgspec.json.Decoder(type_).decode


def msgpack_of(type_: Any) -> Deserializer:
    """Return a deserializer of MessagePack into a type msgspec checks."""
    return msgspec.msgpack.Decoder(type_).decode


def pydantic_to_json(model: Any) -> bytes:
    """Serialize a pydantic model as JSON."""
    text: str = model.model_dump_json()
    return text.encode()


def pydantic_of(model: Any) -> Deserializer:
    """Return a deserializer of JSON into a pydantic model, with its checks."""
    validate: Deserializer = model.model_validate_json
    return validate


def serialize(serializer: Serializer | None, value: Any) -> bytes | None:
    """Apply a serializer; whatever it raises becomes `SerializationFailed`."""
    if value is None:
        return None
    if serializer is None:
        return to_bytes(value)
    try:
        data = serializer(value)
    except Exception as error:  # whatever a user's function raises
        raise SerializationFailed(f"{_name(serializer)} failed on a {type(value).__name__}: {error}") from error
    return to_bytes(data)


def deserialize(deserializer: Deserializer, data: bytes | None) -> Any:
    """Apply a deserializer; whatever it raises becomes `DeserializationFailed`."""
    if data is None:
        return None
    try:
        return deserializer(data)
    except Exception as error:  # whatever a user's function raises
        raise DeserializationFailed(f"{_name(deserializer)} failed on {len(data)} bytes: {error}") from error


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
