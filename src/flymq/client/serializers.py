"""From a program's values to bytes and back.

A serializer is any function from a value to bytes; a deserializer any function from bytes to a value. Neither sees
`None`: it stays null, which under a key means that the key is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from flymq.model.errors import DeserializationFailed, SerializationFailed

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


def to_bytes(value: Any) -> bytes:
    """Take bytes as they are and text as UTF-8: what is done when no serializer is set."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationFailed(
        f"a {type(value).__name__} is neither bytes nor text",
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
    """Apply a serializer; its failures get one name."""
    if value is None:
        return None
    if serializer is None:
        return to_bytes(value)
    try:
        data = serializer(value)
    except Exception as error:  # whatever a user's function raises
        raise SerializationFailed(f"{_name(serializer)} refused a {type(value).__name__}: {error}") from error
    return to_bytes(data)


def deserialize(deserializer: Deserializer, data: bytes | None) -> Any:
    """Apply a deserializer; its failures get one name."""
    if data is None:
        return None
    try:
        return deserializer(data)
    except Exception as error:  # whatever a user's function raises
        raise DeserializationFailed(f"{_name(deserializer)} refused {len(data)} bytes: {error}") from error


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
