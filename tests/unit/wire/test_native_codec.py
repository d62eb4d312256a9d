"""Messages survive the wire, and mistakes come back as errors that say where they are."""

import pytest
from msgspec.msgpack import encode

from flymq.model.delivery import Acks
from flymq.model.errors import (
    BrokenFrame,
    InvalidRequest,
    TopicNotFound,
    UnknownBrokerError,
    UnknownOpcode,
    UnknownRetriableError,
)
from flymq.wire.native.codec import (
    decode_answer,
    decode_request,
    encode_answer,
    encode_error,
    encode_request,
    error_of,
    peek_id,
)
from flymq.wire.native.framing import FrameCutter
from flymq.wire.native.messages.fields import Failure
from flymq.wire.native.messages.records import Produce, ProduceAnswer
from flymq.wire.native.messages.session import ErrorAnswer
from flymq.wire.native.opcodes import Opcode, answer_to
from flymq.wire.native.operations import OPCODE_OF, OPERATIONS, UNASKED


def only_frame(data: bytes | bytearray) -> tuple[int, memoryview]:
    [(opcode, payload)] = FrameCutter().feed(data)
    return opcode, payload


def test_a_request_comes_out_as_it_went_in() -> None:
    request = Produce(id=9, topic="orders", value=b"v", key=b"k", headers=[("trace", b"1")], acks=Acks.ALL)
    opcode, payload = only_frame(encode_request(request))
    assert opcode == Opcode.PRODUCE
    assert decode_request(opcode, payload) == request


def test_the_smallest_produce_request_is_a_map_of_topic_and_value() -> None:
    request = decode_request(Opcode.PRODUCE, encode({"topic": "logs", "value": b"line"}))
    assert request == Produce(topic="logs", value=memoryview(b"line"))


def test_what_has_its_default_is_left_out_on_the_wire() -> None:
    _, payload = only_frame(encode_request(Produce(topic="t", value=b"v")))
    assert bytes(payload) == encode({"topic": "t", "value": b"v"})


def test_a_request_with_an_unknown_field_is_refused_since_it_may_be_a_misspelled_one() -> None:
    payload = encode({"topic": "t", "value": b"v", "partitions": 3})
    with pytest.raises(InvalidRequest, match="unknown field partitions"):
        decode_request(Opcode.PRODUCE, payload)


def test_unknown_fields_of_a_response_are_skipped_so_that_newer_brokers_can_talk_to_older_clients() -> None:
    payload = encode({"topic": "t", "partition": 1, "offset": 5, "added_later": [1, 2]})
    answer = decode_answer(answer_to(Opcode.PRODUCE), payload)
    assert answer == ProduceAnswer(topic="t", partition=1, offset=5)


def test_binary_values_are_views_of_the_frame() -> None:
    payload = encode({"topic": "t", "value": b"large"})
    request = decode_request(Opcode.PRODUCE, payload)
    assert isinstance(request, Produce)
    assert isinstance(request.value, memoryview)
    assert request.value.obj is payload


def test_an_answer_carries_the_opcode_of_its_request_with_the_high_bit() -> None:
    answer = ProduceAnswer(id=3, topic="t", partition=1, offset=5)
    opcode, payload = only_frame(encode_answer(Opcode.PRODUCE, answer))
    assert opcode == 0x81
    assert decode_answer(opcode, payload) == answer


def test_an_error_arrives_as_the_same_error() -> None:
    opcode, payload = only_frame(encode_error(TopicNotFound("no topic 'x'"), request_id=7))
    answer = decode_answer(opcode, payload)
    assert isinstance(answer, ErrorAnswer)
    assert answer.id == 7
    error = error_of(answer)
    assert type(error) is TopicNotFound
    assert (error.message, error.hint) == ("no topic 'x'", TopicNotFound.hint)


def test_an_error_of_a_newer_broker_keeps_its_name_and_whether_to_retry() -> None:
    lasting = error_of(Failure(code="FROM_THE_FUTURE", message="what"))
    passing = error_of(Failure(code="FROM_THE_FUTURE", message="what", retriable=True))
    assert type(lasting) is UnknownBrokerError
    assert type(passing) is UnknownRetriableError
    assert "FROM_THE_FUTURE" in lasting.message
    assert passing.retriable


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({"value": b"v"}, "missing required field topic"),
        ({"topic": 3, "value": b"v"}, r"Expected str, got int - at \$.topic"),
        ({"topic": "t", "value": "text"}, r"Expected bytes . null, got str - at \$.value"),
        ({"topic": "t", "partition": -2}, r"at \$.partition"),
        ({"topic": "t", "acks": 5}, r"at \$.acks"),
        ({"topic": "t", "id": -1}, r"at \$.id"),
        (["topic"], "Expected object, got array"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(payload: object, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=f"PRODUCE: .*{complaint}"):
        decode_request(Opcode.PRODUCE, encode(payload))


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x81\xa5topic", b"\x80\x80", b"\x81\xa1z" + b"\x91" * 100_000])
def test_broken_messagepack_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_request(Opcode.PRODUCE, payload)
    with pytest.raises(BrokenFrame):
        decode_answer(answer_to(Opcode.PRODUCE), payload)


@pytest.mark.parametrize("opcode", [0x00, 0x6F, 0x81, 0xF0, 0xFF])
def test_an_opcode_that_is_no_request_is_refused(opcode: int) -> None:
    with pytest.raises(UnknownOpcode, match=f"{opcode:#04x}"):
        decode_request(opcode, b"\x80")


def test_the_id_of_a_refused_request_can_still_be_read() -> None:
    assert peek_id(encode({"id": 77, "topic": 5})) == 77
    assert peek_id(encode({"id": "x"})) == 0
    assert peek_id(b"\xc1") == 0


def test_the_opcodes_users_know_keep_their_numbers() -> None:
    assert {opcode.name: opcode.value for opcode in OPERATIONS} | {
        "PRODUCE": 0x01,
        "CONSUME": 0x02,
        "CREATE_TOPIC": 0x03,
        "DELETE_TOPIC": 0x04,
        "LIST_TOPICS": 0x05,
        "FETCH": 0x06,
        "SUBSCRIBE": 0x10,
        "COMMIT": 0x11,
        "BEGIN_TXN": 0x20,
        "COMMIT_TXN": 0x21,
        "ABORT_TXN": 0x22,
    } == {opcode.name: opcode.value for opcode in OPERATIONS}


def test_every_opcode_has_its_messages_and_no_answer_collides_with_another_frame() -> None:
    assert set(OPERATIONS) | set(UNASKED) == set(Opcode)
    assert len(OPCODE_OF) == len(OPERATIONS), "two operations share a request"
    assert all(opcode < 0x70 for opcode in OPERATIONS)
    assert all(opcode >= 0xF0 for opcode in UNASKED)
