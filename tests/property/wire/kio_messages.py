"""Random messages of another implementation of the protocol, kio, and what they are in ours."""

from __future__ import annotations

import dataclasses
import datetime
import io
from enum import IntEnum
from importlib import import_module
from random import Random
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from flymq.wire.kafka.apis import Api
from flymq.wire.kafka.values import NO_ID

_INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_ERRORS = list(ErrorCode)
_MS = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def kio_class(api: Api, version: int, side: str) -> type:
    module = import_module(f"kio.schema.{api.name.lower()}.v{version}.{side}")
    found: type = getattr(module, "".join(word.title() for word in api.name.split("_")) + side.title())
    return found


def kio_bytes(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def kio_parse(cls: type, raw: bytes) -> Any:
    message, size = entity_reader(cls)(raw, 0)
    assert size == len(raw), "bytes are left over"
    return message


def random_message(cls: type, chance: Random) -> Any:
    """Return a message with every field at random."""
    return cls(**{field.name: _random_field(field, chance) for field in dataclasses.fields(cls)})


def _random_field(field: dataclasses.Field[Any], chance: Random) -> Any:
    type_: Any = field.type
    if get_origin(type_) is UnionType:
        if chance.random() < 0.2:
            return None
        (type_,) = (each for each in get_args(type_) if each is not NoneType)
    if get_origin(type_) is tuple:
        inner = get_args(type_)[0]
        return tuple(_random_value(inner, field, chance) for _ in range(chance.choice((0, 1, 1, 2, 5))))
    return _random_value(type_, field, chance)


def _random_value(type_: Any, field: dataclasses.Field[Any], chance: Random) -> Any:
    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        return random_message(type_, chance)
    kafka_type = field.metadata["kafka_type"]
    if kafka_type in _INTS:
        bits = _INTS[kafka_type]
        return chance.choice((0, -1, chance.randrange(-(1 << bits - 1), 1 << bits - 1)))
    if kafka_type == "uint16":
        return chance.randrange(1 << 16)
    if kafka_type == "bool":
        return chance.random() < 0.5
    if kafka_type == "error_code":
        return chance.choice(_ERRORS)
    if kafka_type in ("bytes", "records"):
        return chance.randbytes(chance.choice((0, 1, 40, 200)))
    if kafka_type == "uuid":
        return UUID(bytes=chance.randbytes(16))
    if kafka_type == "timedelta_i32":
        return datetime.timedelta(milliseconds=chance.randrange(1 << 31))
    if kafka_type == "timedelta_i64":
        return datetime.timedelta(milliseconds=chance.randrange(1 << 40))
    if kafka_type == "datetime_i64":
        return _EPOCH + datetime.timedelta(milliseconds=chance.randrange(1 << 40))
    assert kafka_type == "string"
    return "".join(chance.choice("aZ0-ä日\N{GRINNING FACE}") for _ in range(chance.choice((0, 1, 7, 60))))


def to_ours(message: Any, cls: type) -> Any:
    """Return the same message in our classes."""
    types = get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(message):
        name, value = _plain(field, getattr(message, field.name))
        inner = _struct_of(types[name])
        if "tag" in field.metadata and dataclasses.is_dataclass(value) and value == field.default:
            value = None  # a struct of defaults and none at all are the same bytes
        if inner is not None and value is not None:
            value = [to_ours(each, inner) for each in value] if isinstance(value, tuple) else to_ours(value, inner)
        values[name] = list(value) if isinstance(value, tuple) else value
    return cls(**values)


def _plain(field: dataclasses.Field[Any], value: Any) -> tuple[str, Any]:
    name = field.name.removeprefix("v3_and_below_")
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return f"{name}_ms", value // _MS
    if kafka_type == "datetime_i64":
        return f"{name}_ms", -1 if value is None else (value - _EPOCH) // _MS
    if kafka_type == "uuid" and not isinstance(value, tuple):
        return name, NO_ID if value is None else value.bytes
    if kafka_type == "uuid":
        return name, tuple(each.bytes for each in value)
    return name, int(value) if isinstance(value, IntEnum) else value


def _struct_of(hint: Any) -> type | None:
    """Return the message class in `C`, `C | None` or `list[C]`."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    return next((found for each in get_args(hint) if (found := _struct_of(each)) is not None), None)
