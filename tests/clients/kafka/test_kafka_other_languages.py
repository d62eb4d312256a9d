"""Clients that come from elsewhere: KafkaJS for Node.js, kcat in C. Skipped where they are not installed."""

import json
import shutil
import subprocess

import pytest
from confluent_kafka import TopicPartition
from tests.clients.kafka import kafkajs
from tests.clients.kafka.kafkajs import KafkaJs
from tests.clients.kafka.members import fill, librdkafka_member
from tests.clients.kafka.peers import PEERS, Row

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
needs_kcat = pytest.mark.skipif(KCAT is None, reason="kcat is not installed: `apt install kcat`")
ROWS = [
    Row(b"key", b"value", (("header", b"\x00\xff"), ("other", b"text"))),
    Row(b"without a value", None, timestamp_ms=1_700_000_000_001),
    Row(None, b"without a key", timestamp_ms=1_700_000_000_002),
]


# --- KafkaJS --------------------------------------------------------------------------------------------------------


@pytest.mark.shows("codecs", client="KafkaJS")
@pytest.mark.shows("keys, headers, nulls and times", client="KafkaJS")
@pytest.mark.shows("idempotent producer", client="KafkaJS")
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kafkajs_and_the_others_read_what_either_has_written(broker, topic, node_modules, codec):
    """Other codecs are no part of KafkaJS: its users add packages for them."""
    peer = KafkaJs(node_modules)
    peer.write(broker.address, topic, ROWS, codec)
    PEERS["librdkafka"].write(broker.address, topic, ROWS, codec)
    for reader in (peer, *PEERS.values()):
        assert reader.read(broker.address, topic, 6) == ROWS * 2


@pytest.mark.shows("large messages", client="KafkaJS")
def test_kafkajs_writes_and_reads_a_large_message(broker, topic, node_modules):
    peer, large = KafkaJs(node_modules), [Row(None, b"x" * 900_000)]
    peer.write(broker.address, topic, large)
    assert peer.read(broker.address, topic, 1) == PEERS["native"].read(broker.address, topic, 1) == large


@pytest.mark.shows("transactions: commit and abort", client="KafkaJS")
def test_kafkajs_writes_all_of_a_transaction_or_nothing(broker, topic, node_modules):
    peer = KafkaJs(node_modules)
    for ending, value in (("commit", b"one"), ("abort", b"never"), ("commit", b"two")):
        peer.write(broker.address, topic, [Row(None, value)], transaction=ending)
    for reader in (peer, PEERS["native"]):
        read = reader.read(broker.address, topic, 2, committed=True)
        assert [row.value for row in read] == [b"one", b"two"]


@pytest.mark.shows("groups: members join and leave", client="KafkaJS")
def test_kafkajs_members_share_the_partitions_and_take_over(broker, topic, node_modules):
    fill(broker.address, topic)
    told = json.loads(kafkajs.ask(node_modules, "share", broker.address, topic))
    assert told == {"together": [0, 1, 2, 3], "alone": [0, 1, 2, 3]}


@pytest.mark.shows("groups: go on where they committed", client="KafkaJS")
def test_kafkajs_goes_on_where_it_committed(broker, topic, node_modules):
    fill(broker.address, topic, 20, partitions=1)
    peer = KafkaJs(node_modules)
    read = [peer.read(broker.address, topic, 10, group=topic) for _ in range(2)]
    assert [int(row.value or b"") for part in read for row in part] == list(range(20))


@pytest.mark.shows("admin", client="KafkaJS")
def test_kafkajs_manages_topics_and_groups(broker, topic, node_modules):
    fill(broker.address, f"{topic}-read", 1)
    reader = librdkafka_member(broker.address, topic)
    reader.commit(offsets=[TopicPartition(f"{topic}-read", 0, 1)], asynchronous=False)
    reader.close()
    told = json.loads(kafkajs.ask(node_modules, "admin", broker.address, topic))
    assert told == {"partitions": 3, "retention": "5000", "isGroupListed": True, "isTopicLeft": False}


# --- kcat -----------------------------------------------------------------------------------------------------------


def kcat(broker, *arguments: str, given: str | None = None) -> str:
    command = [str(KCAT), "-b", broker.address, "-X", "log_level=0", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_kcat
@pytest.mark.shows("codecs", client="kcat")
@pytest.mark.shows("idempotent producer", client="kcat")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_writes_and_reads(broker, topic, codec):
    lines = "".join(f"key-{number}:value-{number}\n" for number in range(20))
    base = ["-t", topic, "-p", "0", "-K", ":"]
    kcat(broker, *base, "-P", "-z", codec, "-X", "enable.idempotence=true", given=lines)
    assert kcat(broker, *base, "-C", "-e", "-q") == lines


@needs_kcat
@pytest.mark.shows("keys, headers, nulls and times", client="kcat")
def test_kcat_writes_and_reads_keys_headers_and_nulls(broker, topic):
    kcat(broker, "-t", topic, "-p", "0", "-P", "-K", ":", "-Z", "-H", "source=shell", given="key:\n:value\n")
    rows = PEERS["native"].read(broker.address, topic, 2)
    assert [row[:3] for row in rows] == [
        (b"key", None, (("source", b"shell"),)),
        (None, b"value", (("source", b"shell"),)),
    ]
    PEERS["native"].write(broker.address, topic, [Row(b"time", None, (("one", b"1"),), 1_700_000_000_000)])
    shown = kcat(broker, "-t", topic, "-p", "0", "-C", "-o", "2", "-e", "-q", "-f", "%k %S %h %T\\n")
    assert shown == "time -1 one=1 1700000000000\n"


@needs_kcat
@pytest.mark.shows("large messages", client="kcat")
def test_kcat_writes_and_reads_a_large_message(broker, topic, tmp_path):
    (tmp_path / "large").write_text("x" * 900_000)
    kcat(broker, "-t", topic, "-p", "0", "-P", str(tmp_path / "large"))
    assert kcat(broker, "-t", topic, "-p", "0", "-C", "-e", "-q", "-D", "") == "x" * 900_000


@needs_kcat
@pytest.mark.shows("groups: go on where they committed", client="kcat")
def test_kcat_goes_on_where_it_committed(broker, topic):
    fill(broker.address, topic, 20, partitions=1)
    group = ["-X", "auto.offset.reset=earliest", "-q", "-c", "10", "-G", topic, topic]
    assert [int(line) for _ in range(2) for line in kcat(broker, *group).split()] == list(range(20))


@needs_kcat
def test_kcat_writes_in_a_transaction(broker, topic):
    kcat(broker, "-t", topic, "-p", "0", "-P", "-X", f"transactional.id={topic}", given="one\ntwo\n")
    read = PEERS["native"].read(broker.address, topic, 2, committed=True)
    assert [row.value for row in read] == [b"one", b"two"]


@needs_kcat
@pytest.mark.shows("admin", client="kcat")
def test_kcat_lists_topics_and_finds_offsets(broker, topic):
    fill(broker.address, topic, 20, partitions=2)
    listed = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    assert len(listed["topics"][0]["partitions"]) == 2
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").split() == [topic, "[0]", "offset", "10"]
