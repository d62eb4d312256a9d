"""Whatever a client sends, it gets a named error, and the broker serves the next one."""

import random
import socket
from contextlib import suppress

import pytest
from benchmarks.raw_client import RawClient

from flymq.testing import TestBroker
from flymq.wire.native.codec import encode_request
from flymq.wire.native.framing import frame_header
from flymq.wire.native.messages.records import Consume, Fetch, FetchPartition, PartitionBatches, ProduceBatch
from flymq.wire.native.messages.session import Done, ErrorAnswer, Hello, HelloAnswer, Ping
from flymq.wire.native.messages.topics import CreateTopic


def receive_error(client: RawClient) -> ErrorAnswer:
    answer = client.receive()
    assert isinstance(answer, ErrorAnswer)
    return answer


def assert_closed(client: RawClient) -> None:
    assert client.socket.recv(1) == b""


def assert_alive(broker: TestBroker) -> None:
    fresh = RawClient(broker.port)
    assert isinstance(fresh.ask(Hello()), HelloAnswer)
    fresh.close()


def test_a_wrong_first_byte_after_a_good_frame_ends_the_connection_with_an_error(flymq_broker, client):
    client.ask(Ping())
    client.socket.sendall(b"GET / HTTP/1.1\r\n")
    assert receive_error(client).code == "BROKEN_FRAME"
    assert_closed(client)
    assert_alive(flymq_broker)


def test_an_unknown_version_is_named_and_ends_the_connection(flymq_broker, client):
    client.socket.sendall(b"\xfb\x02\x01\x00\x00\x00\x00")
    assert receive_error(client).code == "UNSUPPORTED_VERSION"
    assert_closed(client)
    assert_alive(flymq_broker)


def test_a_length_over_the_limit_is_refused_before_its_body_arrives(flymq_broker, client):
    client.socket.sendall(frame_header(0x01, 0xFFFFFFFF))
    assert receive_error(client).code == "REQUEST_TOO_LARGE"
    assert_closed(client)
    assert_alive(flymq_broker)


def test_an_unknown_opcode_is_answered_and_the_connection_goes_on(client):
    client.socket.sendall(frame_header(0x6F, 1) + b"\x80")
    assert receive_error(client).code == "UNKNOWN_OPCODE"
    assert isinstance(client.ask(Ping()), Done)


def test_broken_messagepack_is_answered_and_the_connection_goes_on(client):
    client.socket.sendall(frame_header(0x01, 3) + b"\xc1\xc1\xc1")
    assert receive_error(client).code == "INVALID_REQUEST"
    assert isinstance(client.ask(Ping()), Done)


def test_a_wrong_field_is_named_and_the_error_finds_its_request(client):
    client.socket.sendall(frame_header(0x04, 12) + b"\x82\xa2id\x07\xa5topic\x05")
    error = receive_error(client)
    assert (error.id, error.code) == (7, "INVALID_REQUEST")
    assert "topic" in error.message
    assert isinstance(client.ask(Ping()), Done)


def test_a_batch_that_is_no_batch_is_refused_and_nothing_is_stored(client):
    client.ask(CreateTopic(topic="t", partitions=1))
    answer = client.ask(ProduceBatch(partitions=[PartitionBatches("t", 0, b"nonsense" * 20)]))
    assert answer.partitions[0].error.code == "INVALID_BATCH"
    fetched = client.ask(Fetch(partitions=[FetchPartition("t", 0, 0)]))
    assert fetched.partitions[0].high_watermark == 0


def test_a_record_of_a_missing_topic_is_an_error_with_a_hint(client):
    client.socket.sendall(encode_request(Consume(id=3, topic="missing", offset=0)))
    error = receive_error(client)
    assert (error.id, error.code) == (3, "TOPIC_NOT_FOUND")
    assert error.hint


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_never_harm_the_broker(flymq_broker, seed):
    chance = random.Random(seed)
    raw = socket.create_connection(("127.0.0.1", flymq_broker.port), timeout=20)
    valid = bytes(encode_request(CreateTopic(topic="t", partitions=1))) * 3
    garbage = bytearray(valid if seed % 2 else chance.randbytes(200))
    for _ in range(chance.randint(1, 8)):
        garbage[chance.randrange(len(garbage))] = chance.randrange(256)
    with raw, suppress(OSError):  # bytes of no known protocol are dropped with the connection
        raw.sendall(bytes(garbage))
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(4096):
            pass
    assert_alive(flymq_broker)


def test_a_client_that_goes_in_the_middle_of_a_frame_leaves_nothing_behind(flymq_broker):
    raw = RawClient(flymq_broker.port)
    raw.socket.sendall(bytes(encode_request(CreateTopic(topic="cut", partitions=1)))[:-3])
    raw.close()
    assert_alive(flymq_broker)
