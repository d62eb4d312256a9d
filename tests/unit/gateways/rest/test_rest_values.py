"""Keys and values between JSON and bytes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.gateways.rest.handlers.record_values import show, to_bytes
from flymq.gateways.rest.schema.shapes import Encoding
from flymq.model.errors import InvalidRequest

JSON_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def shown(data: bytes | None, encoding: Encoding) -> tuple[object, Encoding]:
    """Return what a client would read."""
    value, used = show(data, encoding)
    return msgspec.json.decode(msgspec.json.encode(value)), used


@given(JSON_VALUES)
def test_json_is_kept_as_it_was_sent(value: object) -> None:
    sent = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        sent.decode()
    except UnicodeDecodeError:
        with pytest.raises(InvalidRequest):
            to_bytes(msgspec.Raw(sent), Encoding.JSON, "value")
        return
    assert to_bytes(msgspec.Raw(sent), Encoding.JSON, "value") == sent
    assert shown(sent, Encoding.JSON) == (value, Encoding.JSON)


@given(st.text())
def test_a_string_is_its_utf_8(text: str) -> None:
    raw = msgspec.Raw(msgspec.json.encode(text)) if text.isprintable() else msgspec.Raw(json.dumps(text).encode())
    assert to_bytes(raw, Encoding.STRING, "key") == text.encode()
    assert shown(text.encode(), Encoding.STRING) == (text, Encoding.STRING)


@given(st.binary())
def test_any_bytes_travel_as_base64(data: bytes) -> None:
    text, encoding = show(data, Encoding.BASE64)
    assert encoding is Encoding.BASE64
    assert to_bytes(msgspec.Raw(json.dumps(text).encode()), Encoding.BASE64, "value") == data


@given(st.binary())
def test_whatever_is_stored_can_be_shown_and_written_again(data: bytes) -> None:
    value, encoding = show(data, Encoding.JSON)
    again = to_bytes(msgspec.Raw(msgspec.json.encode(value)), encoding, "value")
    assert again is not None
    if encoding is Encoding.JSON:
        assert json.loads(again) == json.loads(data)
    else:
        assert again == data


@pytest.mark.parametrize("encoding", Encoding)
def test_null_is_no_value(encoding: Encoding) -> None:
    assert to_bytes(msgspec.Raw(b"null"), encoding, "value") is None
    assert to_bytes(msgspec.UNSET, encoding, "value") is None
    assert show(None, encoding) == (None, encoding)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (b"1", Encoding.STRING),
        (b"{}", Encoding.BASE64),
        (b'"a"', Encoding.BASE64),
        *((b'"\xff"', encoding) for encoding in Encoding),
    ],
)
def test_what_is_not_of_its_encoding_is_refused(text: bytes, encoding: Encoding) -> None:
    with pytest.raises(InvalidRequest):
        to_bytes(msgspec.Raw(text), encoding, "value")


def test_lines_stay_lines_whatever_a_value_holds() -> None:
    for data in (b'{"a":\n1}', b'["x",\r\n"y"]', b'"a\\nb"'):
        value, _ = show(data, Encoding.JSON)
        assert b"\n" not in msgspec.json.encode(value)
