"""Clients that come from elsewhere: KafkaJS for Node.js, kcat in C. Skipped where they are not installed."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.clients.kafka.peers import PEERS, Row

NODE = shutil.which("node")
KCAT = shutil.which("kcat") or shutil.which("kafkacat")


def has_kafkajs() -> bool:
    if NODE is None:
        return False
    return subprocess.run([NODE, "-e", "require.resolve('kafkajs')"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_kafkajs(), reason="KafkaJS is not installed: `npm install kafkajs`, and set NODE_PATH")
def test_kafkajs_writes_in_transactions_and_reads_in_a_group(broker, topic):
    script = Path(__file__).with_name("kafkajs_round_trip.js")
    command = [str(NODE), str(script), broker.address, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["isListed"]
    assert [row[:2] for row in told["read"]] == [["key", "value"], ["without a value", None], [None, "last"]]
    expected = [
        Row(b"key", b"value", (("header", b"text"),)),
        Row(b"without a value", None, timestamp_ms=1_700_000_000_001),
        Row(None, b"last", timestamp_ms=1_700_000_000_002),
    ]
    assert PEERS["native"].read(broker.address, topic, 3, committed=True) == expected


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed: `apt install kcat`")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_writes_and_reads(broker, topic, codec):
    lines = "".join(f"key-{number}:value-{number}\n" for number in range(20))
    base = [str(KCAT), "-b", broker.address, "-t", topic, "-p", "0", "-K", ":"]
    subprocess.run([*base, "-P", "-z", codec], input=lines, text=True, check=True, timeout=30)
    read = subprocess.run([*base, "-C", "-e", "-q"], capture_output=True, text=True, check=True, timeout=30)
    assert read.stdout == lines
