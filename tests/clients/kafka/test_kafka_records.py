"""What one client writes, every other reads, whatever protocol they speak: keys, headers, nulls, times, codecs."""

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.kafka.peers import KAFKA_PEERS, PEERS, SIZE_MAX, Row

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = [
    Row(b"key", b"value", (("trace", b"\x00\xff"), ("trace", b"twice"), ("empty", b""), ("null", None))),
    Row(None, b"without a key"),
    Row(b"without a value", None),
    Row(b"", b""),
    *(Row(b"%d" % n, b"text that can be packed " * 20, timestamp_ms=1_700_000_000_000 + n) for n in range(100)),
]


def without_null_headers(row: Row) -> Row:
    """kafka-python refuses to write them, though it reads them."""
    return row._replace(headers=tuple(header for header in row.headers if header[1] is not None))


@pytest.mark.shows("codecs", by="writer")
@pytest.mark.shows("keys, headers, nulls and times", by="writer")
@pytest.mark.shows("idempotent producer", by="writer")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", PEERS)
def test_every_client_reads_what_one_has_written(broker, topic, writer, codec):
    rows = ROWS if writer != "kafka-python" else [without_null_headers(row) for row in ROWS]
    PEERS[writer].write(broker.address, topic, rows, codec)
    for name, reader in PEERS.items():
        assert reader.read(broker.address, topic, len(rows)) == rows, name


@pytest.mark.shows("large messages", by="peer")
@pytest.mark.parametrize("peer", KAFKA_PEERS)
def test_a_message_larger_than_a_socket_buffer_comes_back_whole(broker, topic, peer):
    admin = AdminClient({"bootstrap.servers": broker.address})
    new = NewTopic(topic, 1, 1, config={"max.message.bytes": str(SIZE_MAX)})
    admin.create_topics([new])[topic].result()
    rows = [Row(None, bytes([n]) * (3 << 20)) for n in range(2)]
    KAFKA_PEERS[peer].write(broker.address, topic, rows)
    for reader in PEERS.values():
        assert reader.read(broker.address, topic, 2) == rows


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("peer", KAFKA_PEERS)
def test_batches_that_are_checked_in_a_thread_keep_their_order_among_the_others(broker, topic, peer, codec):
    admin = AdminClient({"bootstrap.servers": broker.address})
    new = NewTopic(topic, 1, 1, config={"max.message.bytes": str(SIZE_MAX)})
    admin.create_topics([new])[topic].result()
    rows = [Row(b"%d" % n, b"x" * (3 << 20 if n % 4 == 0 else 10)) for n in range(16)]
    KAFKA_PEERS[peer].write(broker.address, topic, rows, codec)
    assert PEERS["native"].read(broker.address, topic, len(rows)) == rows


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result()
    reports: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
    for key in (b"key", None):
        producer.produce(topic, b"value", key, partition=0, on_delivery=lambda error, _: reports.append(error))
        producer.flush(20)
    first, second = reports
    assert first is None
    assert isinstance(second, confluent_kafka.KafkaError)
    assert second.code() == confluent_kafka.KafkaError.INVALID_RECORD
