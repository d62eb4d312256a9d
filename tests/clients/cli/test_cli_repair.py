"""A damaged partition is offline, the others are served, and `flymq repair` brings it back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.kafka.broker_process import BrokerProcess

from flymq import FlyMQClient
from flymq.cli.app import app
from flymq.cli.exit_codes import run
from flymq.errors import PartitionOffline

Repair = Callable[..., tuple[int, Any, str]]
VALUES = [b"%d" % number * 2000 for number in range(5)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with the topics orders and payments, whose records are on the disk. It was killed."""
    process = BrokerProcess(tmp_path)
    with FlyMQClient(process.address, acks="all") as client:
        for topic in ("orders", "payments"):
            client.create_topic(topic, partitions=1)
            for value in VALUES:
                client.produce(topic, value)
    process.kill()
    yield process
    process.kill()


@pytest.fixture
def repair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Repair:
    """Run `flymq repair`; return its exit code, its output and its notes."""

    def command(*arguments: str) -> tuple[int, Any, str]:
        code = run(app, ["-o", "json", "repair", *arguments, "--data-dir", str(tmp_path)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return command


def segment(data_dir: Path) -> Path:
    (found,) = data_dir.glob("topics/orders~*/0/*.log")
    return found


def read(client: FlyMQClient, topic: str) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while records := client.fetch(topic, 0, offset=offset):
        found += [record.value for record in records]
        offset = records[-1].offset + 1
    return found


def test_a_damaged_partition_is_offline_until_it_is_salvaged(
    broker: BrokerProcess, repair: Repair, tmp_path: Path
) -> None:
    raw = bytearray(segment(tmp_path).read_bytes())
    at = raw.index(b"2" * 100)
    raw[at : at + 8] = b"garbage!"
    segment(tmp_path).write_bytes(raw)
    broker.start()
    with FlyMQClient(broker.address, acks="all", retries=0) as client:
        assert read(client, "payments") == VALUES
        with pytest.raises(PartitionOffline, match=r"orders-0 is offline: .*checksum mismatch"):
            read(client, "orders")
        (partition,) = client.admin.describe_topic("orders").partitions
        assert partition.problem.startswith("orders-0 is offline")
    broker.kill()

    code, findings, note = repair("check")
    assert code == 1 and "flymq repair salvage orders-0" in note
    assert [(each["partition"], each["start_offset"], each["end_offset"]) for each in findings] == [("orders-0", 2, 3)]
    before = segment(tmp_path).read_bytes()
    assert repair("salvage", "orders-0", "--dry-run")[0] == 0 and segment(tmp_path).read_bytes() == before
    code, _, note = repair("salvage", "orders-0")
    assert code == 0 and "gave up 1 offset." in note and ".log.bad-" in note
    assert repair("check")[:2] == (0, [])

    broker.start()
    with FlyMQClient(broker.address, acks="all") as client:
        assert read(client, "orders") == [*VALUES[:2], *VALUES[3:]]
        assert client.produce("orders", b"new") == 5


def test_a_flipped_bit_is_restored(broker: BrokerProcess, repair: Repair, tmp_path: Path) -> None:
    raw = bytearray(segment(tmp_path).read_bytes())
    raw[raw.index(b"2" * 100) + 5] ^= 0x10
    segment(tmp_path).write_bytes(raw)
    code, _, note = repair("salvage", "orders-0")
    assert code == 0 and "Restored 1 batch, gave up 0 offsets." in note
    broker.start()
    with FlyMQClient(broker.address) as client:
        assert read(client, "orders") == VALUES


def test_what_recovery_cut_off_is_taken_back(broker: BrokerProcess, repair: Repair, tmp_path: Path) -> None:
    (segment(tmp_path).parent / "durable").unlink()  # as if nothing had been synced
    raw = bytearray(segment(tmp_path).read_bytes())
    sector = (raw.index(b"2" * 1000) // 512 + 1) * 512
    raw[sector : sector + 512] = bytes(512)
    segment(tmp_path).write_bytes(raw)
    broker.start()
    with FlyMQClient(broker.address) as client:
        assert read(client, "orders") == VALUES[:2]
    broker.stop()
    code, (row,), _ = repair("readopt")
    assert code == 0 and (row["records"], row["outcome"]) == (2, "returns to its offsets")
    broker.start()
    with FlyMQClient(broker.address, acks="all") as client:
        assert read(client, "orders") == [*VALUES[:2], *VALUES[3:]]
        assert client.produce("orders", b"new") == 5


def test_wrong_names_are_refused(broker: BrokerProcess, repair: Repair, tmp_path: Path) -> None:
    assert repair("check", "orders")[0] == 2
    code, _, note = repair("check", "orders-7")
    assert code == 1 and note.startswith("flymq: there is no partition orders-7\n")
    assert repair("salvage")[0] == 2
