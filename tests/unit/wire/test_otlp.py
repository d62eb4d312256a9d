"""Metrics in OpenTelemetry's protobuf: what is read of them, and that no input does harm."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.model.errors import InvalidRequest
from flymq.wire.otlp import Point, parse_metrics


def varint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def message(number: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def attribute(number: int, name: str, value: bytes) -> bytes:
    return message(number, message(1, name) + message(2, value))


def point(value: float, *attributes: bytes) -> bytes:
    shown = varint(6 << 3 | 1) + struct.pack("<q", value) if isinstance(value, int) else b""
    shown = shown or varint(4 << 3 | 1) + struct.pack("<d", value)
    return message(1, varint(3 << 3 | 1) + bytes(8) + shown + b"".join(attributes))


def metric(name: str, *, gauge: bytes = b"", total: bytes = b"") -> bytes:
    values = (message(5, gauge) if gauge else b"") + (message(7, total) if total else b"")
    return message(2, message(1, name) + message(2, "what it is about") + message(3, "ms") + values)


def metrics(*of_scope: bytes, resource: bytes = b"") -> bytes:
    scope = message(1, message(1, "a scope")) + b"".join(of_scope)
    return message(1, message(1, resource) + message(2, scope))


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    texts = attribute(7, "topic", message(1, "orders")), attribute(7, "partition", integer(3, 4))
    others = attribute(7, "flag", integer(2, 1)), attribute(7, "negative", integer(3, (1 << 64) - 5))
    sent = metrics(
        metric("lag", gauge=point(1.5, *texts) + point(2.5, *others)),
        metric("records", total=point(7) + integer(2, 2) + integer(3, 1)),
        metric("delta", total=point(8) + integer(2, 1) + integer(3, 1)),
        metric("depth", total=point(-9) + integer(2, 2)),
        resource=attribute(1, "group_id", message(1, "billing")),
    )
    of = {"group_id": "billing"}
    assert parse_metrics(sent, points_max=100).points == [
        Point("lag", 1.5, {"topic": "orders", "partition": "4"}, of),
        Point("lag", 2.5, {"flag": "true", "negative": "-5"}, of),
        Point("records", 7, {}, of, is_counter=True),
        Point("delta", 8, {}, of),
        Point("depth", -9, {}, of),
    ]


@pytest.mark.parametrize("filler", [b"\x0a\x00", message(1, message(2, message(2, message(5, b"\x0a\x00" * 200))))])
def test_a_message_of_very_many_tiny_fields_is_read_up_to_a_limit(filler: bytes) -> None:
    sent = metrics(metric("lag", gauge=point(1)))
    found = parse_metrics(sent + filler * (400_000 // len(filler)) + sent, points_max=3)
    assert (len(found.points), found.left_out) == (1, 1)


def test_numbers_beyond_the_limit_are_counted_and_left_out() -> None:
    found = parse_metrics(metrics(metric("lag", gauge=point(1) * 5)), points_max=3)
    assert (len(found.points), found.left_out) == (3, 2)


def test_points_without_a_number_and_histograms_are_left_out() -> None:
    histogram = message(2, message(1, "times") + message(9, message(1, b"\0" * 0)))
    sent = metrics(metric("lag", gauge=message(1, b"")), metric("nan", gauge=point(float("nan"))), histogram)
    assert parse_metrics(sent, points_max=10).points == []


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_message_that_ends_too_early_is_refused_or_has_less(cut: int) -> None:
    whole = metrics(metric("lag", gauge=point(1.5, attribute(7, "topic", message(1, "orders")))))
    with pytest.raises(InvalidRequest):
        parse_metrics(whole[:-cut], points_max=10)


@pytest.mark.parametrize("data", [b"\x0b", b"\x0f", b"\x80" * 11, b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_what_is_no_protobuf_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_metrics(data, points_max=10)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(InvalidRequest):
        parse_metrics(data, points_max=10)


@given(st.binary(max_size=60))
def test_any_bytes_within_a_metric_are_read_or_refused(data: bytes) -> None:
    for sent in (metrics(data), metrics(message(2, data)), metrics(metric("lag", gauge=message(1, data)))):
        with suppress(InvalidRequest):
            parse_metrics(sent, points_max=10)
