"""What one client writes, every other reads, whatever protocol they speak: keys, headers, nulls, times, codecs."""

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
