"""Transactions in plain requests: late and repeated ones, with and without an epoch per transaction (KIP-890)."""

from __future__ import annotations

import datetime
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.add_offsets_to_txn import v3 as add_offsets
from kio.schema.add_partitions_to_txn import v3 as add_partitions
from kio.schema.add_partitions_to_txn import v5 as add_batched
from kio.schema.api_versions import v3 as versions_v3
from kio.schema.api_versions import v4 as versions_v4
from kio.schema.end_txn import v4 as end_old
from kio.schema.end_txn import v5 as end_new
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id import v5 as init_producer
from kio.schema.produce import v10 as produce_older
from kio.schema.produce import v11 as produce_old
from kio.schema.produce import v12 as produce_new
from kio.schema.txn_offset_commit import v4 as offsets_old
from kio.schema.txn_offset_commit import v5 as offsets_new
from tests.clients.kafka.peers import PEERS
from tests.clients.kafka.raw import RawKafka

from flymq import FlyMQClient
from flymq.record.batch import encode_batch

MS = datetime.timedelta(milliseconds=1)


class TransactionalProducer:
    """A producer that sends each request when the test says so, on any connection."""

    def __init__(self, raw: RawKafka, topic: str, *, timeout_ms: int = 60_000) -> None:
        self.raw = raw
        self.topic = topic
        self.name = f"writer-of-{topic}"
        self.timeout_ms = timeout_ms
        self.id, self.epoch, self.sequence = -1, -1, 0
        self.adopt(self.init())

    def adopt(self, answer: Any) -> None:
        """Go on with the identity of a response."""
        assert answer.error_code is ErrorCode.none
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def named(self, epoch: int | None = None) -> dict[str, Any]:
        epoch = self.epoch if epoch is None else epoch
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": epoch}

    def init(self) -> Any:
        request = init_producer.InitProducerIdRequest(**self.named(), transaction_timeout=self.timeout_ms * MS)
        return self.raw.ask(request, init_producer.InitProducerIdResponse)

    def add(self, raw: RawKafka | None = None) -> ErrorCode:
        topics = (add_partitions.request.AddPartitionsToTxnTopic(name=self.topic, partitions=(0,)),)
        named = {f"v3_and_below_{key}": value for key, value in self.named().items()}
        request = add_partitions.AddPartitionsToTxnRequest(**named, v3_and_below_topics=topics)
        answer = (raw or self.raw).ask(request, add_partitions.AddPartitionsToTxnResponse)
        (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        return result.partition_error_code

    def verify(self, *, epoch: int | None = None, verify_only: bool = True) -> ErrorCode:
        topics = (add_batched.request.AddPartitionsToTxnTopic(name=self.topic, partitions=(0,)),)
        asked = add_batched.request.AddPartitionsToTxnTransaction(
            **self.named(epoch), verify_only=verify_only, topics=topics
        )
        request = add_batched.AddPartitionsToTxnRequest(transactions=(asked,))
        answer = self.raw.ask(request, add_batched.AddPartitionsToTxnResponse)
        (result,) = answer.results_by_transaction[0].topic_results[0].results_by_partition
        return result.partition_error_code

    def produce(self, value: bytes, version: Any = produce_new, *, epoch: int | None = None, sequence: int = -1) -> Any:
        batch = encode_batch(
            [(None, value)],
            timestamp_ms=1,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=self.sequence if sequence < 0 else sequence,
            transactional=True,
        )
        data = version.request.PartitionProduceData(index=0, records=bytes(batch))
        request = version.ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout=1000 * MS,
            topic_data=(version.request.TopicProduceData(name=self.topic, partition_data=(data,)),),
        )
        answer = self.raw.ask(request, version.ProduceResponse).responses[0].partition_responses[0]
        if answer.error_code is ErrorCode.none and sequence < 0:
            self.sequence += 1
        return answer.error_code

    def end(self, *, commit: bool, raw: RawKafka | None = None) -> ErrorCode:
        request = end_old.EndTxnRequest(**self.named(), committed=commit)
        return (raw or self.raw).ask(request, end_old.EndTxnResponse).error_code

    def end_with_new_epoch(self, *, commit: bool, epoch: int | None = None) -> Any:
        request = end_new.EndTxnRequest(**self.named(epoch), committed=commit)
        return self.raw.ask(request, end_new.EndTxnResponse)

    def commit_offset(self, group: str, version: Any) -> ErrorCode:
        partition = version.request.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        request = version.TxnOffsetCommitRequest(
            **self.named(),
            group_id=group,
            topics=(version.request.TxnOffsetCommitRequestTopic(name=self.topic, partitions=(partition,)),),
        )
        answer = self.raw.ask(request, version.TxnOffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code

    def add_group(self, group: str) -> ErrorCode:
        request = add_offsets.AddOffsetsToTxnRequest(**self.named(), group_id=group)
        return self.raw.ask(request, add_offsets.AddOffsetsToTxnResponse).error_code


@pytest.fixture
def raw(broker: Any) -> Iterator[RawKafka]:
    with RawKafka(broker.port) as connected:
        yield connected


@pytest.fixture
def producer(broker: Any, raw: RawKafka, topic: str) -> TransactionalProducer:
    with FlyMQClient(broker.address) as client:
        client.create_topic(topic, partitions=1)
    return TransactionalProducer(raw, topic)


def committed(broker: Any, topic: str, count: int) -> list[bytes | None]:
    return [row.value for row in PEERS["native"].read(broker.address, topic, count, committed=True)]


def check_committed(broker: Any, topic: str, *values: bytes) -> None:
    """Compare all committed records: one more is written behind them, so that a reader need not wait for silence."""
    with FlyMQClient(broker.address) as client:
        client.produce(topic, b"last")
    assert committed(broker, topic, len(values) + 1) == [*values, b"last"]


# --- late requests --------------------------------------------------------------------------------------------------


def test_a_late_commit_on_a_connection_that_was_given_up_does_not_commit_the_next_transaction(broker, topic, producer):
    given_up = producer.raw
    with RawKafka(broker.port) as fresh:
        producer.raw = fresh
        assert producer.add() is ErrorCode.none
        assert producer.produce(b"first", produce_old) is ErrorCode.none
        assert producer.end(commit=True) is ErrorCode.none
        assert producer.add() is ErrorCode.none
        assert producer.produce(b"aborted", produce_old) is ErrorCode.none
        with pytest.raises(ConnectionError):
            producer.end(commit=True, raw=given_up)
        assert producer.end(commit=False) is ErrorCode.none
    check_committed(broker, topic, b"first")


def test_a_late_partition_on_a_connection_that_was_given_up_begins_no_transaction(broker, producer):
    given_up = producer.raw
    with RawKafka(broker.port) as fresh:
        producer.raw = fresh
        assert producer.add() is ErrorCode.none
        assert producer.end(commit=True) is ErrorCode.none
        with pytest.raises(ConnectionError):
            producer.add(raw=given_up)
        assert producer.end(commit=True) is ErrorCode.none, "a repetition, since nothing has begun"


def test_a_late_batch_on_a_connection_that_was_given_up_is_not_in_the_next_transaction(broker, topic, producer):
    given_up = producer.raw
    with RawKafka(broker.port) as fresh:
        producer.raw = fresh
        assert producer.add() is ErrorCode.none
        assert producer.produce(b"aborted", produce_old) is ErrorCode.none
        assert producer.end(commit=False) is ErrorCode.none
        assert producer.add() is ErrorCode.none
        producer.raw = given_up
        with pytest.raises(ConnectionError):
            producer.produce(b"aborted", produce_old, sequence=0)
        producer.raw = fresh
        assert producer.produce(b"next", produce_old) is ErrorCode.none
        assert producer.end(commit=True) is ErrorCode.none
    check_committed(broker, topic, b"next")


def test_a_client_that_goes_back_to_an_older_connection_is_made_to_open_another_one(broker, producer):
    with RawKafka(broker.port) as newer:
        assert producer.add(raw=newer) is ErrorCode.none
    with pytest.raises(ConnectionError):
        producer.end(commit=True)
    with RawKafka(broker.port) as fresh:
        assert producer.end(commit=True, raw=fresh) is ErrorCode.none


def test_a_producer_takes_over_on_an_older_connection_than_that_of_its_predecessor(broker, topic, producer):
    with RawKafka(broker.port) as newer:
        assert producer.add(raw=newer) is ErrorCode.none
        successor = TransactionalProducer(producer.raw, topic)
        assert producer.add(raw=newer) is ErrorCode.producer_fenced
        assert successor.add() is ErrorCode.none
        assert successor.produce(b"of the successor", produce_old) is ErrorCode.none
        assert successor.end(commit=True) is ErrorCode.none
    check_committed(broker, topic, b"of the successor")


def test_a_late_commit_with_its_own_epoch_gets_its_answer_again_and_does_not_commit_the_next_transaction(
    broker, topic, producer
):
    assert producer.produce(b"first") is ErrorCode.none
    first = producer.epoch
    answer = producer.end_with_new_epoch(commit=True)
    producer.adopt(answer)
    assert producer.epoch == first + 1
    assert producer.produce(b"aborted") is ErrorCode.none
    assert producer.end_with_new_epoch(commit=True, epoch=first) == answer
    assert producer.end_with_new_epoch(commit=False, epoch=first).error_code is ErrorCode.producer_fenced
    producer.adopt(producer.end_with_new_epoch(commit=False))
    check_committed(broker, topic, b"first")


def test_a_late_batch_of_an_ended_transaction_is_refused(broker, topic, producer):
    assert producer.produce(b"first") is ErrorCode.none
    first = producer.epoch
    producer.adopt(producer.end_with_new_epoch(commit=True))
    assert producer.produce(b"late", epoch=first, sequence=1) is ErrorCode.invalid_producer_epoch
    assert producer.produce(b"second") is ErrorCode.none
    assert producer.produce(b"late", epoch=first, sequence=1) is ErrorCode.invalid_producer_epoch
    producer.adopt(producer.end_with_new_epoch(commit=True))
    check_committed(broker, topic, b"first", b"second")


def test_an_abort_before_the_first_batch_arrives_refuses_that_batch(broker, topic, producer):
    before = producer.epoch
    producer.adopt(producer.end_with_new_epoch(commit=False))
    assert producer.epoch == before + 1
    assert producer.produce(b"late", epoch=before) is ErrorCode.invalid_producer_epoch
    assert producer.produce(b"next") is ErrorCode.none
    producer.adopt(producer.end_with_new_epoch(commit=True))
    check_committed(broker, topic, b"next")


def test_the_first_batch_of_a_new_epoch_has_the_sequence_zero(producer):
    assert producer.produce(b"first") is ErrorCode.none
    producer.adopt(producer.end_with_new_epoch(commit=True))
    assert producer.produce(b"not the first", sequence=1) is ErrorCode.out_of_order_sequence_number
    assert producer.produce(b"second") is ErrorCode.none


# --- what is part of a transaction ----------------------------------------------------------------------------------


def test_without_kip_890_a_partition_must_be_added_before_it_is_written_to(broker, topic, producer):
    assert producer.produce(b"no transaction", produce_older) is ErrorCode.invalid_txn_state
    assert producer.add_group("group") is ErrorCode.none
    assert producer.produce(b"not added", produce_older) is ErrorCode.invalid_txn_state
    assert producer.produce(b"not added", produce_old) is ErrorCode.transaction_abortable
    assert producer.add() is ErrorCode.none
    assert producer.produce(b"added", produce_old) is ErrorCode.none
    assert producer.end(commit=True) is ErrorCode.none
    check_committed(broker, topic, b"added")


def test_without_kip_890_a_group_must_be_added_before_its_offsets_are_committed(broker, topic, producer):
    assert producer.add() is ErrorCode.none
    assert producer.commit_offset(topic, offsets_old) is ErrorCode.invalid_txn_state
    assert producer.add_group(topic) is ErrorCode.none
    assert producer.commit_offset(topic, offsets_old) is ErrorCode.none
    assert producer.end(commit=True) is ErrorCode.none


def test_with_kip_890_offsets_begin_a_transaction(broker, topic, producer):
    assert producer.commit_offset(topic, offsets_new) is ErrorCode.none
    assert producer.produce(b"with offsets") is ErrorCode.none
    producer.adopt(producer.end_with_new_epoch(commit=True))
    check_committed(broker, topic, b"with offsets")
    with FlyMQClient(broker.address) as client:
        (position,) = client.admin.describe_group(topic).positions
    assert position.offset == 5


def test_partitions_are_verified_and_added_in_the_batched_form(producer):
    assert producer.verify() is ErrorCode.transaction_abortable
    assert producer.verify(verify_only=False) is ErrorCode.none
    assert producer.verify() is ErrorCode.none
    assert producer.verify(epoch=producer.epoch + 1) is ErrorCode.producer_fenced
    producer.adopt(producer.end_with_new_epoch(commit=True))
    assert producer.verify() is ErrorCode.transaction_abortable


# --- the broker aborts ----------------------------------------------------------------------------------------------


def abort_as_administrator(broker: Any, producer: TransactionalProducer) -> None:
    """Let the broker abort the open transaction, as it does when it times out."""
    url = f"http://{broker.address}/api/v1/transactions/{producer.name}/abort"
    with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as answer:
        assert answer.status < 300


def test_with_kip_890_a_producer_aborts_what_the_broker_has_aborted_and_goes_on(broker, topic, producer):
    assert producer.produce(b"aborted") is ErrorCode.none
    abort_as_administrator(broker, producer)
    assert producer.produce(b"too late") is ErrorCode.transaction_abortable
    assert producer.commit_offset(topic, offsets_new) is ErrorCode.transaction_abortable
    assert producer.end_with_new_epoch(commit=True).error_code is ErrorCode.transaction_abortable
    answer = producer.end_with_new_epoch(commit=False)
    assert producer.end_with_new_epoch(commit=False) == answer
    producer.adopt(answer)
    assert producer.produce(b"next") is ErrorCode.none
    producer.adopt(producer.end_with_new_epoch(commit=True))
    check_committed(broker, topic, b"next")


def test_without_kip_890_a_producer_aborts_what_the_broker_has_aborted_and_goes_on_with_its_epoch(
    broker, topic, producer
):
    assert producer.add() is ErrorCode.none
    assert producer.produce(b"aborted", produce_old) is ErrorCode.none
    abort_as_administrator(broker, producer)
    assert producer.produce(b"second half", produce_old) is ErrorCode.invalid_producer_id_mapping
    assert producer.add() is ErrorCode.unknown_producer_id
    assert producer.add_group(topic) is ErrorCode.unknown_producer_id
    assert producer.end(commit=True) is ErrorCode.unknown_producer_id
    for _ in range(2):
        assert producer.end(commit=False) is ErrorCode.none
    assert producer.add() is ErrorCode.none
    producer.sequence += 1  # it has counted the batch that was refused
    assert producer.produce(b"next", produce_old) is ErrorCode.none
    assert producer.end(commit=True) is ErrorCode.none
    check_committed(broker, topic, b"next")


@pytest.mark.parametrize("version", [produce_old, produce_new])
def test_a_producer_gets_a_new_epoch_after_the_broker_has_aborted_and_a_retry_gets_the_same(
    broker, topic, producer, version
):
    if version is produce_old:
        assert producer.add() is ErrorCode.none
    assert producer.produce(b"aborted", version) is ErrorCode.none
    abort_as_administrator(broker, producer)
    answer = producer.init()
    assert producer.init() == answer
    zombie = producer.epoch
    producer.adopt(answer)
    producer.adopt(producer.init())
    assert producer.epoch == answer.producer_epoch + 1
    producer.epoch, current = zombie, producer.epoch
    assert producer.init().error_code is ErrorCode.producer_fenced
    producer.epoch = current
    assert producer.add() is ErrorCode.none


def test_a_producer_whose_id_was_taken_over_after_a_timeout_cannot_take_it_back(broker, raw, topic, producer):
    assert producer.produce(b"aborted") is ErrorCode.none
    abort_as_administrator(broker, producer)
    other = TransactionalProducer(raw, topic)
    assert producer.init().error_code is ErrorCode.producer_fenced
    assert other.produce(b"of the other") is ErrorCode.none
    other.adopt(other.end_with_new_epoch(commit=True))
    check_committed(broker, topic, b"of the other")


# --- versions -------------------------------------------------------------------------------------------------------


def test_apiversions_tells_that_every_transaction_has_an_epoch_of_its_own(raw):
    named = {"client_software_name": "raw", "client_software_version": "1"}
    told = raw.ask(versions_v4.request.ApiVersionsRequest(**named), versions_v4.response.ApiVersionsResponse)
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in told.supported_features}
    assert supported["transaction.version"] == (0, 2)
    finalized = {feature.name: feature.max_version_level for feature in told.finalized_features}
    assert finalized["transaction.version"] == 2
    assert told.finalized_features_epoch >= 0
    older = raw.ask(versions_v3.request.ApiVersionsRequest(**named), versions_v3.response.ApiVersionsResponse)
    assert (older.supported_features, len(older.finalized_features)) == ((), len(finalized))
