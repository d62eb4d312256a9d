import json

import pytest

from flymq.cli.formats.messages import COLUMNS, Message, for_terminal, from_json, text_of, to_json, to_raw
from flymq.client.records import ConsumerRecord

HEADERS = (("trace", b"7f"), ("raw", b"\xff"), ("none", None))
TIMESTAMP = 1_767_225_600_000


def a_record(key: bytes | None = b"alice", value: bytes | None = b"hi") -> ConsumerRecord:
    return ConsumerRecord("orders", 2, 17, TIMESTAMP, key, value, HEADERS)


RECORD = a_record()


def test_a_record_as_json_has_everything() -> None:
    assert json.loads(to_json(RECORD)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 17,
        "timestamp": TIMESTAMP,
        "key": "alice",
        "value": "hi",
        "headers": [["trace", "7f"], ["raw", {"base64": "/w=="}], ["none", None]],
    }


@pytest.mark.parametrize("value", [b"hi", b"", b"\x00\xff", b'{"a": 1}', "Grüße".encode(), None])
@pytest.mark.parametrize("key", [b"alice", b"\xfe", None])
def test_what_is_printed_as_json_can_be_written_again(key: bytes | None, value: bytes | None) -> None:
    assert from_json(to_json(a_record(key, value))) == Message(key, value, list(HEADERS), TIMESTAMP)


def test_a_value_that_is_json_itself_is_written_as_json() -> None:
    assert from_json(b'{"value": {"total": 3}}') == Message(None, b'{"total":3}', [])
    assert from_json(b'{"key": 5, "value": [1, 2]}') == Message(b"5", b"[1,2]", [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "truncated"),
        (b"hi", "malformed"),
        (b"[1]", "Expected `object`"),
        (b'{"key": "a"}', "`value` is missing"),
        (b'{"value": {"base64": "*"}}', "base64"),
        (b'{"value": {"base64": 3}}', "not 'int'"),
        (b'{"value": "a", "timestamp": "now"}', "`timestamp` must be an integer"),
        (b'{"value": "a", "headers": ["x"]}', "not enough values"),
        (b'{"value": "a", "headers": 3}', "not iterable"),
    ],
)
def test_a_line_that_is_no_message_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(line)


def test_as_text_the_value_stands_after_what_was_asked_for() -> None:
    assert text_of([])(RECORD) == b"hi\n"
    assert text_of([COLUMNS["offset"], COLUMNS["key"]])(RECORD) == b"17\talice\thi\n"
    assert text_of([COLUMNS["headers"]])(RECORD) == b"trace=7f,raw=\xff,none=\thi\n"
    assert text_of([COLUMNS["key"]])(a_record(None, None)) == b"null\tnull\n"
    assert to_raw(RECORD) == b"hi"


def test_a_message_cannot_take_over_the_terminal() -> None:
    assert for_terminal(b"a\x1b[31m\tb\x07\xff\n") == rb"a\x1b[31m" + b"\tb" + rb"\x07\xff" + b"\n"
    assert for_terminal("Grüße\n".encode()) == "Grüße\n".encode()
