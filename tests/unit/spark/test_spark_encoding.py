"""Rows become batches: in the right partition, in their order, none too large, with sequence numbers that go on."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest

from flymq.model.errors import InvalidColumns, PartitionNotFound
from flymq.model.names import TopicPartition
from flymq.record.batch import parse_batch
from flymq.record.header import check_batch
from flymq.record.partitioning import partition_for_key
from flymq.record.record import Record
from flymq.spark.options import parse_write_options
from flymq.spark.sink.encoding import BatchEncoder
from flymq.wire.native.messages.transactions import InitProducerAnswer


def encoder(*, partitions: int = 3, message_bytes_max: int = 1 << 20, **options: str) -> BatchEncoder:
    made = BatchEncoder(parse_write_options({"topic": "t", **options}), first_turn=1, is_transactional=True)
    made.identity = InitProducerAnswer(producer_id=7, producer_epoch=2)
    made.learn("t", partitions, message_bytes_max)
    return made


def encode(made: BatchEncoder, **columns: object) -> dict[TopicPartition, list[Record]]:
    found: dict[TopicPartition, list[Record]] = defaultdict(list)
    for name, batch in made.encode(pa.RecordBatch.from_pydict(columns), now_ms=5):
        found[name] += parse_batch(batch)
    return found


def test_rows_of_a_key_stay_together_in_their_order() -> None:
    keys = [f"k{number % 10}" for number in range(100)]
    found = encode(encoder(), key=keys, value=[str(number) for number in range(100)])
    for name, records in found.items():
        assert {partition_for_key(record.key or b"", 3) for record in records} == {name.partition}
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers)
    assert sum(map(len, found.values())) == 100


def test_rows_without_a_key_go_round_batch_by_batch() -> None:
    made = encoder()
    turns = [list(encode(made, value=["a", "b"])) for _ in range(4)]
    assert turns == [[TopicPartition("t", number)] for number in (1, 2, 0, 1)]


def test_a_row_goes_to_the_partition_it_names() -> None:
    found = encode(encoder(), value=["a", "b"], key=["k", "k"], partition=pa.array([2, None], pa.int32()))
    home = partition_for_key(b"k", 3)
    assert [record.value for record in found[TopicPartition("t", 2)]] == [b"a"] + [b"b"] * (home == 2)


@pytest.mark.parametrize("partition", [3, -2])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    with pytest.raises(PartitionNotFound):
        encode(encoder(), value=["a"], partition=pa.array([partition], pa.int32()))


def test_a_row_names_its_topic() -> None:
    made = BatchEncoder(parse_write_options({}), first_turn=0, is_transactional=False)
    made.identity = InitProducerAnswer(producer_id=7, producer_epoch=2)
    rows = pa.RecordBatch.from_pydict({"topic": ["x", "y", "x"], "value": ["1", "2", "3"]})
    assert made.unknown_topics(rows) == ["x", "y"]
    for topic in ("x", "y"):
        made.learn(topic, 1, 1 << 20)
    assert made.unknown_topics(rows) == []
    found = {name.topic: [record.value for record in parse_batch(batch)] for name, batch in made.encode(rows, 5)}
    assert found == {"x": [b"1", b"3"], "y": [b"2"]}
    with pytest.raises(InvalidColumns, match="a row has no topic"):
        made.unknown_topics(pa.RecordBatch.from_pydict({"topic": pa.array([None], pa.string()), "value": ["1"]}))


def test_batches_keep_below_the_limit_of_the_topic_headers_included() -> None:
    made = encoder(partitions=1, message_bytes_max=10_000)
    headers = pa.array(
        [[("name", b"h" * 300)]] * 200, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    rows = pa.RecordBatch.from_pydict({"key": ["k" * 100] * 200, "value": ["v" * 100] * 200, "headers": headers})
    sizes = [len(batch) for _, batch in made.encode(rows, 5)]
    assert 8_000 < max(sizes) <= 10_000
    [(_, huge)] = made.encode(pa.RecordBatch.from_pydict({"value": ["v" * 20_000]}), 5)
    assert len(huge) > 20_000  # for the broker to refuse


def test_sequence_numbers_go_on_in_each_partition() -> None:
    made = encoder(partitions=1, batchBytes="200")
    sequences = []
    for _ in range(2):
        for _, batch in made.encode(pa.RecordBatch.from_pydict({"value": ["v" * 50] * 5}), 5):
            header = check_batch(batch)
            assert (header.producer_id, header.producer_epoch, header.is_transactional) == (7, 2, True)
            sequences.append((header.base_sequence, header.record_count))
    assert sequences == [(0, 2), (2, 2), (4, 1), (5, 2), (7, 2), (9, 1)]
