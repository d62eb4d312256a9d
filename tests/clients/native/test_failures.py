"""What the SDK does when brokers are away, silent, restarted or not what they seem."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from tests.ports import free_port

from flymq import AsyncFlyMQClient, FlyMQClient
from flymq.errors import (
    BrokenFrame,
    BrokerUnavailable,
    FlyMQError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    RequestTimedOut,
    UnknownOpcode,
    UnknownProducer,
)
from flymq.record.header import check_batch
from flymq.testing import TestBroker, running_broker
from flymq.wire.native.codec import decode_request, encode_answer, encode_error
from flymq.wire.native.framing import FrameCutter
from flymq.wire.native.messages.fields import Failure, Message
from flymq.wire.native.messages.records import PartitionAppended, ProduceBatch, ProduceBatchAnswer
from flymq.wire.native.messages.session import Hello, HelloAnswer
from flymq.wire.native.messages.topics import (
    ListTopicsAnswer,
    Metadata,
    MetadataAnswer,
    PartitionMetadata,
    TopicMetadata,
)
from flymq.wire.native.messages.transactions import InitProducer, InitProducerAnswer
from flymq.wire.native.opcodes import Opcode


@contextmanager
def fake_broker(answer: Callable[[int, Message], bytes | None]) -> Iterator[str]:
    """Listen on a port and answer each request as the test says; None keeps silent."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        cutter = FrameCutter()
        with connection:
            while data := connection.recv(65536):
                for opcode, payload in cutter.feed(data):
                    reply = answer(opcode, decode_request(opcode, payload))
                    if reply is not None:
                        connection.sendall(reply)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def only_greets(opcode: int, request: Message) -> bytes | None:
    if isinstance(request, Hello):
        return bytes(encode_answer(opcode, HelloAnswer(id=request.id, server="fake", version="0", broker=0)))
    return None


def test_nobody_at_the_address_is_said_at_once_with_what_to_do():
    with closing(FlyMQClient(f"127.0.0.1:{free_port()}")) as client:
        with pytest.raises(BrokerUnavailable, match=r"no broker at 127\.0\.0\.1") as refusal:
            client.produce("topic", b"v")
        assert "flymq server start" in refusal.value.hint
        assert client.metrics().connect_failures >= 1


def test_the_next_address_is_tried_when_one_is_dead(broker: TestBroker, topic: str):
    with FlyMQClient(f"127.0.0.1:{free_port()},{broker.address}") as client:
        assert client.produce(topic, b"v") == 0


def test_records_survive_a_restart_of_the_broker_without_loss_or_repetition(tmp_path):
    port = free_port()
    settings = {"listener.port": port}
    with closing(FlyMQClient(f"127.0.0.1:{port}", retry_backoff_ms=10, retry_backoff_max_ms=100)) as client:
        with running_broker(tmp_path, settings):
            client.create_topic("orders", partitions=1)
            producer = client.producer()
            consumer = client.consumer("orders")
            deliveries = [producer.send("orders", b"%d" % n) for n in range(100)]
            read = [int(record.value) for record in consumer.poll(20_000, max_records=50)]
        deliveries += [producer.send("orders", b"%d" % n) for n in range(100, 200)]
        with running_broker(tmp_path, settings):
            assert [delivery.result(timeout_s=60) for delivery in deliveries] == list(range(200))
            while len(read) < 200:
                read += [int(record.value) for record in consumer.poll(20_000)]
            assert read == list(range(200))
            assert client.metrics().retries > 0
            assert client.metrics().connects >= 2
            client.close()


def test_a_record_is_given_up_when_its_time_is_over(tmp_path):
    port = free_port()
    with running_broker(tmp_path, {"listener.port": port}):
        client = FlyMQClient(f"127.0.0.1:{port}", retry_backoff_ms=10, delivery_timeout_ms=1000)
        client.produce("orders", b"v")
    with pytest.raises(BrokerUnavailable):
        client.produce("orders", b"v")
    client.close()


def test_retries_can_be_limited(tmp_path):
    port = free_port()
    with running_broker(tmp_path, {"listener.port": port}):
        client = FlyMQClient(f"127.0.0.1:{port}", retry_backoff_ms=10, retries=2)
        client.produce("orders", b"v")
    with pytest.raises(FlyMQError):
        client.produce("orders", b"v")
    assert client.metrics().retries == 2
    client.close()


def test_a_broker_that_does_not_answer_times_out():
    with fake_broker(only_greets) as address, FlyMQClient(address, request_timeout_ms=500) as client:
        with pytest.raises(RequestTimedOut, match="LIST_TOPICS"):
            client.list_topics()
        assert client.metrics().errors_by_code == {"REQUEST_TIMED_OUT": 1}
        assert client.metrics().requests_in_flight == 0
        assert client.metrics().requests == 2, "a counter does not fall: the greeting and what was not answered"


def test_a_port_that_speaks_something_else_is_named():
    def answer(opcode: int, request: Message) -> bytes:
        return b"HTTP/1.1 400 Bad Request\r\n\r\n"

    with fake_broker(answer) as address, closing(FlyMQClient(address)) as client, pytest.raises(BrokenFrame) as refusal:
        client.list_topics()
    assert "does not speak this protocol" in refusal.value.message


def test_what_an_older_broker_does_not_offer_is_a_clear_error():
    def answer(opcode: int, request: Message) -> bytes:
        refusal = UnknownOpcode("LIST_GROUPS is not served")
        return only_greets(opcode, request) or bytes(encode_error(refusal, request.id))

    with fake_broker(answer) as address, FlyMQClient(address) as client:
        with pytest.raises(UnknownOpcode, match=r"does not offer this") as refusal:
            client.admin.list_groups()
        assert "upgrade" in refusal.value.hint


def test_an_error_that_passes_is_tried_again():
    refused: list[Message] = []

    def answer(opcode: int, request: Message) -> bytes:
        greeting = only_greets(opcode, request)
        if greeting is not None:
            return greeting
        if len(refused) < 3:
            refused.append(request)
            return bytes(encode_error(NotEnoughReplicas(), request.id))
        return bytes(encode_answer(opcode, ListTopicsAnswer(id=request.id, topics=[])))

    with fake_broker(answer) as address, FlyMQClient(address, retry_backoff_ms=1) as client:
        assert client.list_topics() == []
        metrics = client.metrics()
        assert (metrics.retries, metrics.errors_by_code) == (3, {"NOT_ENOUGH_REPLICAS": 3})


def test_closing_wakes_a_call_that_waits(broker: TestBroker, topic: str):
    client = FlyMQClient(broker.address)
    client.create_topic(topic)
    consumer = client.consumer(topic)
    ended = threading.Event()

    def read() -> None:
        assert list(consumer) == []
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    while not consumer.assignment():
        pass
    client.close()
    reader.join()
    assert ended.is_set()


async def test_many_clients_come_and_go_without_leaving_connections(broker: TestBroker, topic: str):
    async def one(n: int) -> None:
        async with AsyncFlyMQClient(broker.address) as client:
            await client.produce(topic, b"%d" % n)
            assert client.metrics().connections == 1
        assert client.metrics().connections == 0

    await asyncio.gather(*(one(n) for n in range(20)))


class ScriptedBroker:
    """A broker of one topic that answers PRODUCE_BATCH with one error after the other, then with success."""

    def __init__(self, *errors: FlyMQError) -> None:
        self._errors = list(errors)
        self._identities = 0
        self.batches: list[tuple[int, int]] = []  # producer id and base sequence of each batch that came

    def answer(self, opcode: int, request: Message) -> bytes | None:
        if isinstance(request, Hello):
            served: list[int] = [Opcode.INIT_PRODUCER]
            return bytes(encode_answer(opcode, HelloAnswer("fake", "0", broker=0, opcodes=served, id=request.id)))
        if isinstance(request, Metadata):
            partitions = [PartitionMetadata(0, leader=0)]
            topics = [TopicMetadata("t", partitions=partitions)]
            return bytes(encode_answer(opcode, MetadataAnswer("c", brokers=[], topics=topics, id=request.id)))
        if isinstance(request, InitProducer):
            self._identities += 1
            return bytes(encode_answer(opcode, InitProducerAnswer(self._identities, 0, id=request.id)))
        assert isinstance(request, ProduceBatch)
        [part] = request.partitions
        header = check_batch(part.batches)
        self.batches.append((header.producer_id, header.base_sequence))
        error = Failure.of(self._errors.pop(0)) if self._errors else None
        appended = [PartitionAppended("t", 0, base_offset=len(self.batches), error=error)]
        return bytes(encode_answer(opcode, ProduceBatchAnswer(partitions=appended, id=request.id)))


def test_a_repeated_batch_keeps_its_number():
    script = ScriptedBroker(NotLeader(), NotEnoughReplicas())
    with fake_broker(script.answer) as address, FlyMQClient(address, retry_backoff_ms=1) as client:
        client.produce("t", b"v")
        client.produce("t", b"v")
    assert script.batches == [(1, 0), (1, 0), (1, 0), (1, 1)]


def test_a_broker_that_has_lost_count_gets_the_batch_under_a_new_identity():
    script = ScriptedBroker(OutOfOrderSequence(), UnknownProducer())
    with fake_broker(script.answer) as address, FlyMQClient(address, retry_backoff_ms=1) as client:
        client.produce("t", b"v")
        client.produce("t", b"v")
    assert script.batches == [(1, 0), (2, 0), (3, 0), (3, 1)]


def test_a_refused_batch_leaves_its_number_to_the_next():
    script = ScriptedBroker(MessageTooLarge())
    with fake_broker(script.answer) as address, FlyMQClient(address) as client:
        with pytest.raises(MessageTooLarge):
            client.produce("t", b"v")
        client.produce("t", b"v")
    assert script.batches == [(1, 0), (1, 0)]


def test_a_batch_given_up_in_doubt_takes_its_identity_with_it():
    """The broker may have it or not, so its number can be used neither again nor skipped."""

    script = ScriptedBroker()
    silent = True

    def answer(opcode: int, request: Message) -> bytes | None:
        reply = script.answer(opcode, request)
        return None if silent and isinstance(request, ProduceBatch) else reply

    settings: dict[str, Any] = {"request_timeout_ms": 500, "retry_backoff_ms": 1, "retries": 1}
    with fake_broker(answer) as address, FlyMQClient(address, **settings) as client:
        with pytest.raises(RequestTimedOut):
            client.produce("t", b"v")
        silent = False
        client.produce("t", b"v")
    assert script.batches == [(1, 0), (1, 0), (2, 0)]
