"""Read numbers from OpenTelemetry's metrics in protobuf (OTLP 1.x), as Kafka's clients push them (KIP-714).

Only the fields that are used are read; all others are skipped by their wire type:

    MetricsData ─ 1 ResourceMetrics ┬ 1 Resource ─ 1 KeyValue
                                    └ 2 ScopeMetrics ─ 2 Metric ┬ 1 name
                                                                ├ 5 Gauge ─ 1 NumberDataPoint
                                                                └ 7 Sum   ┬ 1 NumberDataPoint
                                                                          ├ 2 temporality: 1 delta, 2 cumulative
                                                                          └ 3 monotonic
    NumberDataPoint: 7 KeyValue, 4 double or 6 sfixed64        KeyValue: 1 key, 2 AnyValue

Kafka's clients send no histograms and no summaries: they are left out. Nesting is fixed, so it needs no limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct

from flymq.model.errors import InvalidRequest

_DOUBLE, _SFIXED64 = Struct("<d"), Struct("<q")
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_CUMULATIVE = 2
_ATTRIBUTES_MAX = 16
_TEXT_BYTES_MAX = 200
_FIELDS_MAX = 100_000
"""Of one message, about 0.2 s to read; what follows is left out. A number has ten to twenty, but a field can be as
short as two bytes, and a kilobyte of zstd unpacks to millions of them."""

Attributes = dict[str, str]
Field = tuple[int, int, int | memoryview]
"""Number, wire type, and the value: an integer, or the bytes of it."""


@dataclass(slots=True)
class Point:
    """One number."""

    name: str
    value: float
    attributes: Attributes
    resource: Attributes
    is_counter: bool = False
    """A sum that only grows, since the client has started."""


@dataclass(slots=True)
class Metrics:
    points: list[Point] = field(default_factory=list)
    left_out: int = 0
    """Numbers beyond the limit."""


def parse_metrics(data: bytes | memoryview, *, points_max: int) -> Metrics:
    """Return the numbers of a message. Raises InvalidRequest if it cannot be read."""
    found, fields = Metrics(), _Fields()
    try:
        for number, kind, value in fields(memoryview(data)):
            if number == 1 and kind == _LENGTH:
                _read_resource(_bytes(value), fields, found, points_max)
    except _TooManyFieldsError:
        found.left_out += 1
    return found


def _read_resource(data: memoryview, fields: _Fields, found: Metrics, points_max: int) -> None:
    resource: Attributes = {}
    scopes: list[memoryview] = []
    for number, kind, value in fields(data):
        if number == 1 and kind == _LENGTH:
            for inner, inner_kind, pair in fields(_bytes(value)):
                if inner == 1 and inner_kind == _LENGTH:
                    _read_attribute(_bytes(pair), fields, resource)
        elif number == 2 and kind == _LENGTH:
            scopes.append(_bytes(value))
    for scope in scopes:
        for number, kind, value in fields(scope):
            if number == 2 and kind == _LENGTH:
                _read_metric(_bytes(value), fields, resource, found, points_max)


def _read_metric(data: memoryview, fields: _Fields, resource: Attributes, found: Metrics, points_max: int) -> None:
    name = ""
    values: list[tuple[memoryview, bool]] = []
    for number, kind, value in fields(data):
        if number == 1 and kind == _LENGTH:
            name = _text(_bytes(value))
        elif number in (5, 7) and kind == _LENGTH:
            values.append((_bytes(value), number == 7))
    for inner, is_sum in values:
        points: list[memoryview] = []
        temporality, is_monotonic = 0, False
        for number, kind, value in fields(inner):
            if number == 1 and kind == _LENGTH:
                points.append(_bytes(value))
            elif is_sum and number == 2 and kind == _VARINT:
                temporality = _int(value)
            elif is_sum and number == 3 and kind == _VARINT:
                is_monotonic = bool(value)
        is_counter = is_monotonic and temporality == _CUMULATIVE
        for point in points:
            if len(found.points) >= points_max:
                found.left_out += 1
            elif (one := _read_point(point, fields, name, resource)) is not None:
                one.is_counter = is_counter
                found.points.append(one)


def _read_point(data: memoryview, fields: _Fields, name: str, resource: Attributes) -> Point | None:
    number_of_it = math.nan
    attributes: Attributes = {}
    for number, kind, value in fields(data):
        if number == 4 and kind == _FIXED64:
            (number_of_it,) = _DOUBLE.unpack(_bytes(value))
        elif number == 6 and kind == _FIXED64:
            (number_of_it,) = _SFIXED64.unpack(_bytes(value))
        elif number == 7 and kind == _LENGTH:
            _read_attribute(_bytes(value), fields, attributes)
    return None if math.isnan(number_of_it) else Point(name, number_of_it, attributes, resource)


def _read_attribute(data: memoryview, fields: _Fields, into: Attributes) -> None:
    key, shown = "", ""
    for number, kind, value in fields(data):
        if number == 1 and kind == _LENGTH:
            key = _text(_bytes(value))
        elif number == 2 and kind == _LENGTH:
            shown = _read_any_value(_bytes(value), fields)
    if key and (key in into or len(into) < _ATTRIBUTES_MAX):
        into[key] = shown


def _read_any_value(data: memoryview, fields: _Fields) -> str:
    shown = ""
    for number, kind, value in fields(data):
        if number == 1 and kind == _LENGTH:
            shown = _text(_bytes(value))
        elif number == 2 and kind == _VARINT:
            shown = "true" if value else "false"
        elif number == 3 and kind == _VARINT:
            unsigned = _int(value)
            shown = str(unsigned - (1 << 64) if unsigned >> 63 else unsigned)
        elif number == 4 and kind == _FIXED64:
            shown = str(_DOUBLE.unpack(_bytes(value))[0])
    return shown


# --- protobuf -------------------------------------------------------------------------------------------------------


class _TooManyFieldsError(Exception):
    """The message has more than `_FIELDS_MAX` fields."""


class _Fields:
    """Cuts messages into fields, and counts them."""

    def __init__(self) -> None:
        self._left = _FIELDS_MAX

    def __call__(self, data: memoryview) -> Iterator[Field]:
        for each in _fields(data):
            if not self._left:
                raise _TooManyFieldsError
            self._left -= 1
            yield each


def _fields(data: memoryview) -> Iterator[Field]:
    at, size = 0, len(data)
    while at < size:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _varint(data, at)
            yield tag >> 3, kind, number
            continue
        if kind == _LENGTH:
            length, at = _varint(data, at)
        elif kind == _FIXED64:
            length = 8
        elif kind == _FIXED32:
            length = 4
        else:
            raise InvalidRequest(f"the metrics have a field of the unknown wire type {kind}")
        if length > size - at:
            raise InvalidRequest("the metrics end too early")
        yield tag >> 3, kind, data[at : at + length]
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number & ((1 << 64) - 1), at + shift + 1
    raise InvalidRequest("the metrics end too early, or have a number of more than 64 bits")


def _bytes(value: int | memoryview) -> memoryview:
    assert isinstance(value, memoryview)
    return value


def _int(value: int | memoryview) -> int:
    assert isinstance(value, int)
    return value


def _text(data: memoryview) -> str:
    if len(data) > _TEXT_BYTES_MAX:
        data = data[:_TEXT_BYTES_MAX]
    return str(data, "utf-8", "replace")
