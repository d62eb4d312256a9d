"""Transactions over the wire, as a client without an SDK would use them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.raw_client import RawClient

from flymq.model.delivery import Acks, Isolation
from flymq.record.batch import encode_batch
from flymq.record.reading import parse_records
from flymq.testing import TestBroker, running_broker
from flymq.wire.native.codec import encode_request
from flymq.wire.native.messages import transactions as wire
from flymq.wire.native.messages.fields import Message, PartitionRef
from flymq.wire.native.messages.groups import Commit, CommitAnswer, FetchOffsets, OffsetToCommit
from flymq.wire.native.messages.records import Fetch, FetchPartition, PartitionBatches, ProduceBatch
from flymq.wire.native.messages.session import Done, ErrorAnswer
from flymq.wire.native.messages.topics import CreateTopic, DeleteTopic


class Producer:
    """A transactional producer with the frames written by hand."""

    def __init__(self, client: RawClient, name: str = "payments", timeout_ms: int = 60_000) -> None:
        self.client = client
        self.name = name
        answer = self.ask(wire.InitProducer(transactional_id=name, transaction_timeout_ms=timeout_ms))
        self.producer_id: int = answer.producer_id
        self.epoch: int = answer.producer_epoch
        self.sequences: dict[int, int] = {}

    @property
    def identity(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def ask(self, request: Message) -> Any:
        answer = self.client.ask(request)
        assert not isinstance(answer, ErrorAnswer), f"{answer.code}: {answer.message}"
        return answer

    def refused(self, request: Message) -> str:
        answer = self.client.ask(request)
        assert isinstance(answer, ErrorAnswer), answer
        return answer.code

    def begin(self) -> None:
        assert self.ask(wire.BeginTxn(**self.identity)) == Done()

    def batch(self, *values: bytes, partition: int = 0) -> bytearray:
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        return encode_batch(
            [(None, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def try_produce(self, *values: bytes, topic: str = "t", partition: int = 0, acks: Acks = Acks.ALL) -> str | None:
        parts = [PartitionBatches(topic, partition, self.batch(*values, partition=partition))]
        answer = self.ask(ProduceBatch(partitions=parts, acks=acks, transactional_id=self.name))
        error = answer.partitions[0].error
        return None if error is None else str(error.code)

    def produce(self, *values: bytes, topic: str = "t", partition: int = 0, acks: Acks = Acks.ALL) -> None:
        assert self.try_produce(*values, topic=topic, partition=partition, acks=acks) is None

    def commit(self) -> None:
        self._go_on_as(self.ask(wire.CommitTxn(**self.identity)))

    def abort(self) -> None:
        self._go_on_as(self.ask(wire.AbortTxn(**self.identity)))

    def _go_on_as(self, answer: wire.EndTxnAnswer) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()


def read(
    client: RawClient, topic: str = "t", partition: int = 0, isolation: Isolation = Isolation.READ_COMMITTED
) -> list[bytes]:
    answer: Any = client.ask(Fetch(partitions=[FetchPartition(topic, partition, 0)], isolation=isolation))
    [part] = answer.partitions
    assert part.error is None
    return [record.value or b"" for record in parse_records(part.batches, aborted=part.aborted)]


def committed(client: RawClient, group: str = "readers") -> dict[int, int]:
    answer: Any = client.ask(FetchOffsets(group=group, require_stable=False))
    return {part.partition: part.offset for part in answer.partitions}


@pytest.fixture
def topic(client: RawClient) -> RawClient:
    client.ask(CreateTopic(topic="t", partitions=3))
    return client


@pytest.fixture
def second(flymq_broker: TestBroker) -> Iterator[RawClient]:
    other = RawClient(flymq_broker.port)
    other.socket.settimeout(20)
    yield other
    other.close()


def test_a_committed_transaction_becomes_visible_in_all_partitions(topic: RawClient) -> None:
    producer = Producer(topic)
    producer.begin()
    for partition in range(3):
        producer.produce(b"a", b"b", partition=partition)
    assert [read(topic, partition=partition) for partition in range(3)] == [[], [], []]
    assert read(topic, isolation=Isolation.READ_UNCOMMITTED) == [b"a", b"b"]
    producer.commit()
    assert [read(topic, partition=partition) for partition in range(3)] == [[b"a", b"b"]] * 3


def test_an_aborted_transaction_is_never_seen(topic: RawClient) -> None:
    producer = Producer(topic)
    producer.begin()
    producer.produce(b"no")
    producer.abort()
    producer.begin()
    producer.produce(b"yes")
    producer.commit()
    assert read(topic) == [b"yes"]


def test_every_transaction_has_an_epoch_of_its_own_and_late_batches_are_refused(topic: RawClient) -> None:
    producer = Producer(topic)
    producer.begin()
    producer.produce(b"first")
    late = producer.batch(b"late")
    before = producer.epoch
    producer.commit()
    assert producer.epoch == before + 1
    producer.begin()
    answer = producer.ask(ProduceBatch(partitions=[PartitionBatches("t", 0, late)], transactional_id=producer.name))
    assert answer.partitions[0].error.code == "PRODUCER_FENCED"
    producer.produce(b"second")
    producer.commit()
    assert read(topic) == [b"first", b"second"]


def test_a_late_end_of_the_last_transaction_does_not_touch_the_next(topic: RawClient) -> None:
    producer = Producer(topic)
    producer.begin()
    producer.produce(b"first")
    late_commit, late_abort = wire.CommitTxn(**producer.identity), wire.AbortTxn(**producer.identity)
    producer.commit()
    producer.begin()
    producer.produce(b"second")
    assert producer.ask(late_commit).producer_epoch == producer.epoch
    assert producer.refused(late_abort) == "PRODUCER_FENCED"
    assert read(topic) == [b"first"]
    producer.commit()
    assert read(topic) == [b"first", b"second"]


def test_a_second_producer_of_the_same_id_fences_the_first(topic: RawClient, second: RawClient) -> None:
    zombie = Producer(topic)
    zombie.begin()
    zombie.produce(b"zombie")
    heir = Producer(second)
    assert heir.producer_id == zombie.producer_id
    assert zombie.try_produce(b"more") == "PRODUCER_FENCED"
    assert zombie.refused(wire.CommitTxn(**zombie.identity)) == "PRODUCER_FENCED"
    heir.begin()
    heir.produce(b"heir")
    heir.commit()
    assert read(topic) == [b"heir"]


def test_a_transactional_batch_outside_a_transaction_is_refused(topic: RawClient) -> None:
    producer = Producer(topic)
    assert producer.try_produce(b"too early") == "INVALID_TRANSACTION_STATE"
    producer.begin()
    answer = producer.ask(ProduceBatch(partitions=[PartitionBatches("t", 0, producer.batch(b"nameless"))]))
    assert answer.partitions[0].error.code == "INVALID_TRANSACTION_STATE"
    assert producer.refused(wire.CommitTxn(transactional_id="other", producer_id=1, producer_epoch=0)) == (
        "UNKNOWN_PRODUCER"
    )
    producer.commit()
    assert read(topic, isolation=Isolation.READ_UNCOMMITTED) == []


def test_a_transaction_left_open_is_aborted_at_its_timeout(topic: RawClient) -> None:
    producer = Producer(topic, timeout_ms=500)
    producer.begin()
    producer.produce(b"forgotten")
    while (code := producer.try_produce(b"more")) is None:
        pass
    while code == "TRANSACTION_IN_PROGRESS":
        code = producer.try_produce(b"more")
    assert code == "TRANSACTION_ABORTED"
    assert producer.refused(wire.CommitTxn(**producer.identity)) == "TRANSACTION_ABORTED"
    again = Producer(topic)
    again.begin()
    again.produce(b"remembered")
    again.commit()
    assert read(topic) == [b"remembered"]


def test_consumed_offsets_count_exactly_when_the_transaction_commits(topic: RawClient) -> None:
    producer = Producer(topic)
    topic.ask(Commit(group="readers", offsets=[OffsetToCommit("t", 0, 1)]))
    for offset, ends, expected in ((5, producer.abort, 1), (9, producer.commit, 9)):
        producer.begin()
        producer.produce(b"out", partition=1)
        request = wire.TxnCommitOffsets(**producer.identity, group="readers", offsets=[OffsetToCommit("t", 0, offset)])
        assert isinstance(producer.ask(request), CommitAnswer)
        assert committed(topic) == {0: 1}
        ends()
        assert committed(topic) == {0: expected}


def test_who_asks_for_stable_offsets_waits_for_the_open_transaction(topic: RawClient, second: RawClient) -> None:
    producer = Producer(topic)
    producer.begin()
    producer.ask(wire.TxnCommitOffsets(**producer.identity, group="readers", offsets=[OffsetToCommit("t", 0, 4)]))
    second.socket.sendall(encode_request(FetchOffsets(group="readers", partitions=[PartitionRef("t", 0)])))
    elsewhere: Any = topic.ask(FetchOffsets(group="readers", partitions=[PartitionRef("t", 1)]))
    assert elsewhere.partitions[0].offset == -1
    producer.commit()
    answer: Any = second.receive()
    assert answer.partitions[0].offset == 4


def test_offsets_of_a_fenced_member_do_not_enter_a_transaction(topic: RawClient) -> None:
    producer = Producer(topic)
    producer.begin()
    request = wire.TxnCommitOffsets(
        **producer.identity, group="readers", offsets=[OffsetToCommit("t", 0, 3)], member="gone", generation=1
    )
    assert producer.refused(request) == "UNKNOWN_MEMBER"
    producer.commit()
    assert committed(topic) == {}


def test_a_reader_that_waits_is_woken_by_the_commit(topic: RawClient, second: RawClient) -> None:
    producer = Producer(topic)
    producer.begin()
    producer.produce(b"now")
    second.socket.sendall(encode_request(Fetch(partitions=[FetchPartition("t", 0, 0)], max_wait_ms=20_000)))
    producer.commit()
    answer: Any = second.receive()
    assert [record.value for record in parse_records(answer.partitions[0].batches)] == [b"now"]


def test_a_transaction_over_a_deleted_topic_still_ends(topic: RawClient) -> None:
    topic.ask(CreateTopic(topic="gone", partitions=1))
    producer = Producer(topic)
    producer.begin()
    producer.produce(b"kept")
    producer.produce(b"lost", topic="gone", partition=0)
    topic.ask(DeleteTopic(topic="gone"))
    producer.commit()
    assert read(topic) == [b"kept"]


def test_an_open_transaction_goes_on_after_an_orderly_restart(tmp_path: Path) -> None:
    with running_broker(data_dir=tmp_path) as broker:
        producer = Producer(RawClient(broker.port))
        producer.ask(CreateTopic(topic="t", partitions=1))
        producer.begin()
        producer.produce(b"before")
        producer.client.close()
    with running_broker(data_dir=tmp_path) as broker:
        producer.client = RawClient(broker.port)
        producer.produce(b"after")
        assert read(producer.client) == []
        producer.commit()
        assert read(producer.client) == [b"before", b"after"]
        producer.client.close()


# --- attempts -------------------------------------------------------------------------------------------------------


def attempt(client: RawClient, batch: int, number: int, *values: bytes, partition: int = 0) -> Producer:
    producer = Producer(client, f"query-1:{batch}:{number}")
    producer.begin()
    producer.produce(*values, partition=partition)
    return producer


def commit_attempts(batch: int, *attempts: Producer) -> wire.CommitAttempts:
    listed = [wire.AttemptToCommit(**producer.identity) for producer in attempts]
    return wire.CommitAttempts(query="query-1", batch=batch, attempts=listed)


def test_listed_attempts_become_visible_together_and_others_are_dropped(topic: RawClient) -> None:
    failed = attempt(topic, 0, 0, b"half")
    first, other = attempt(topic, 0, 1, b"whole"), attempt(topic, 0, 2, b"other", partition=1)
    assert (read(topic), read(topic, partition=1)) == ([], [])
    assert topic.ask(commit_attempts(0, first, other)) == Done()
    assert (read(topic), read(topic, partition=1)) == ([b"whole"], [b"other"])
    assert failed.try_produce(b"late") == "UNKNOWN_PRODUCER"


def test_a_batch_that_is_committed_again_changes_nothing(topic: RawClient) -> None:
    assert topic.ask(commit_attempts(0, attempt(topic, 0, 0, b"once"))) == Done()
    again = attempt(topic, 0, 0, b"twice")
    assert topic.ask(commit_attempts(0, again)) == Done()
    assert topic.ask(commit_attempts(0)) == Done()
    assert read(topic) == [b"once"]
    assert topic.ask(commit_attempts(1, attempt(topic, 1, 0, b"next"))) == Done()
    assert topic.ask(commit_attempts(0, attempt(topic, 0, 3, b"older"))) == Done()
    assert read(topic) == [b"once", b"next"]


def test_a_batch_with_an_attempt_that_is_gone_is_refused_as_a_whole(topic: RawClient) -> None:
    good, gone = attempt(topic, 0, 0, b"good"), attempt(topic, 0, 1, b"gone", partition=1)
    listed = commit_attempts(0, good, gone)
    gone.abort()
    assert good.refused(listed) == "PRODUCER_FENCED"
    assert read(topic) == []
    assert topic.ask(commit_attempts(0, good)) == Done()
    assert read(topic) == [b"good"]


def test_what_was_committed_is_remembered_over_a_restart(tmp_path: Path) -> None:
    with running_broker(data_dir=tmp_path) as broker:
        client = RawClient(broker.port)
        client.ask(CreateTopic(topic="t", partitions=1))
        client.ask(commit_attempts(7, attempt(client, 7, 0, b"once")))
        client.close()
    with running_broker(data_dir=tmp_path) as broker:
        client = RawClient(broker.port)
        assert client.ask(commit_attempts(7, attempt(client, 7, 0, b"twice"))) == Done()
        assert read(client) == [b"once"]
        client.close()
