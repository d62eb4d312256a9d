"""Infer a schema from a sample of JSON values. Pure: bytes in, column types in Spark's DDL out.

Where the types of two values differ, the wider one is used: an integer and a fraction become a double, anything else
becomes a string, which Spark fills with the raw JSON. A field that a value lacks is null.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TypeAlias

import msgspec

Shape: TypeAlias = "str | dict[str, Shape] | list[Shape] | None"
"""A type by its name, a struct by its fields, an array by its element type; None if only null was seen."""

_LONG = range(-(1 << 63), 1 << 63)
_OBJECTS_MIN = 0.5
_decode = msgspec.json.Decoder().decode


def infer_fields(values: Iterable[bytes]) -> dict[str, str]:
    """Return the names and types of the fields of these values; empty if less than half of them are JSON objects."""
    seen = [_parsed(value) for value in values]
    objects = [value for value in seen if isinstance(value, dict)]
    if not objects or len(objects) < len(seen) * _OBJECTS_MIN:
        return {}
    shape = reduce(_wider, map(_shape_of, objects))
    assert isinstance(shape, dict)
    return _fields(shape)


def _parsed(value: bytes) -> object:
    try:
        return _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _shape_of(value: object) -> Shape:
    match value:
        case None:
            return None
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if value in _LONG else "DOUBLE"
        case float():
            return "DOUBLE"
        case dict():
            return {name: _shape_of(field) for name, field in value.items()}
        case list():
            return [reduce(_wider, map(_shape_of, value), None)]
    return "STRING"


def _wider(one: Shape, other: Shape) -> Shape:
    """Return the type that can hold values of both."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _wider(one.get(name), other.get(name)) for name in one | other}
    if isinstance(one, list) and isinstance(other, list):
        return [_wider(one[0], other[0])]
    return "DOUBLE" if (one, other) in (("BIGINT", "DOUBLE"), ("DOUBLE", "BIGINT")) else "STRING"


def _ddl(shape: Shape) -> str:
    if isinstance(shape, dict):
        fields = ", ".join(f"{quoted(name)}: {kind}" for name, kind in _fields(shape).items())
        return f"STRUCT<{fields}>" if fields else "STRING"
    if isinstance(shape, list):
        return f"ARRAY<{_ddl(shape[0])}>"
    return shape or "STRING"


def _fields(shape: dict[str, Shape]) -> dict[str, str]:
    """Return a struct's fields. Spark ignores case: of two names that differ only in case, the first is kept."""
    first = {name.casefold(): name for name in reversed(shape) if name}
    return {name: _ddl(shape[name]) for name in shape if first.get(name.casefold()) == name}


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"
