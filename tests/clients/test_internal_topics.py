"""Internal topics are the broker's own: no protocol can write, change, cut or delete them."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from benchmarks.raw_client import RawClient
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from flymq import FlyMQClient
from flymq.cli.app import app
from flymq.cli.exit_codes import run
from flymq.cluster.image import Image, Topic
from flymq.host.disk import SystemDisk
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.model.names import TopicPartition as FlyMQPartition
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import encode_batch
from flymq.record.header import assign
from flymq.storage.data_directory import DataDirectory
from flymq.testing import TestBroker, running_broker
from flymq.wire.native.messages.records import (
    DeleteRecords,
    DeleteRecordsPartition,
    PartitionBatches,
    Produce,
    ProduceBatch,
)
from flymq.wire.native.messages.session import ErrorAnswer
from flymq.wire.native.messages.topics import AddPartitions, AlterTopic, CreateTopic, DeleteTopic

INTERNAL = ("__offsets", "__transactions")
CODE = "INTERNAL_TOPIC"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A broker's data, with a group that has committed an offset."""
    with running_broker(tmp_path) as broker, FlyMQClient(broker.address) as client:
        client.create_topic("orders", partitions=1)
        client.produce_batch("orders", [b"1", b"2", b"3"])
        with client.consumer("orders", group="billing") as consumer:
            assert len(consumer.poll(timeout_ms=5_000)) == 3
            consumer.commit()
    return tmp_path


@pytest.fixture
def broker(data_dir: Path) -> Iterator[TestBroker]:
    with running_broker(data_dir) as running:
        yield running


def committed(broker: TestBroker) -> dict[str, int | None]:
    with httpx.Client(base_url=f"http://127.0.0.1:{broker.port}/api/v1") as api:
        described = api.get("/groups/billing").json()
    return {f"{each['topic']}-{each['partition']}": each["offset"] for each in described["positions"]}


@pytest.mark.parametrize("topic", INTERNAL)
def test_the_native_protocol_leaves_internal_topics_alone(broker: TestBroker, topic: str) -> None:
    client = RawClient(broker.port)
    batch = encode_batch([(b"x", b"x")])
    refused = client.ask(ProduceBatch(partitions=[PartitionBatches(topic, 0, batch)])).partitions[0]
    assert refused.error.code == CODE
    deleted = client.ask(DeleteRecords(partitions=[DeleteRecordsPartition(topic, 0, -1)])).partitions[0]
    assert deleted.error.code == CODE
    for request in (
        Produce(topic=topic, value=b"x"),
        AlterTopic(topic=topic, settings={"cleanup.policy": "delete"}),
        AddPartitions(topic=topic, partitions=8),
        DeleteTopic(topic=topic),
        CreateTopic(topic="__mine"),
    ):
        answer = client.ask(request)
        assert isinstance(answer, ErrorAnswer)
        assert answer.code == CODE
    client.close()
    assert committed(broker) == {"orders-0": 3}


@pytest.mark.parametrize("topic", INTERNAL)
def test_rest_leaves_internal_topics_alone(broker: TestBroker, topic: str) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{broker.port}/api/v1") as api:
        answers = [
            api.post(f"/topics/{topic}/records", json={"records": [{"value": 1}]}),
            api.patch(f"/topics/{topic}", json={"partitions": 8}),
            api.patch(f"/topics/{topic}", json={"config": {"retention.ms": 1}}),
            api.patch(f"/topics/{topic}/config", json={"config": {"cleanup.policy": "delete"}}),
            api.delete(f"/topics/{topic}/partitions/0/records"),
            api.delete(f"/topics/{topic}"),
        ]
        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(403, CODE)] * len(answers)
        assert api.get(f"/topics/{topic}").json()["partitions"] < 8
    assert committed(broker) == {"orders-0": 3}


@pytest.mark.parametrize("topic", INTERNAL)
def test_kafka_clients_leave_internal_topics_alone(broker: TestBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    changed = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)],
    )
    for futures in (
        admin.delete_topics([topic]),
        admin.create_partitions([NewPartitions(topic, 8)]),
        admin.incremental_alter_configs([changed]),
        admin.delete_records([TopicPartition(topic, 0, -1)]),
    ):
        (future,) = futures.values()
        with pytest.raises(KafkaException):
            future.result(10)
    reports: list[object] = []
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": False})
    producer.produce(topic, b"x", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(10) == 0
    assert reports[0] is not None
    assert committed(broker) == {"orders-0": 3}


def test_the_command_line_says_why_and_the_broker_starts_again(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_broker(data_dir) as broker:
        assert run(app, ["--server", broker.address, "produce", "__offsets", "x"]) == 1
    assert "internal" in capsys.readouterr().err
    with running_broker(data_dir) as broker:
        assert committed(broker) == {"orders-0": 3}


# --- whatever wrote it: a record that cannot be read -----------------------------------------------------------------


def poison(data_dir: Path) -> None:
    """Write what does not belong into every partition of `__offsets`, past the front door."""
    disk = SystemDisk()
    directory = DataDirectory(disk, data_dir)
    for topic in asyncio.run(topics_of(data_dir)):
        if topic.name == "__offsets":
            for number, state in enumerate(topic.partitions):
                log = directory.open(FlyMQPartition(topic.name, number), topic.topic_id, topic.config)
                for key, value in ((b"x", b"y"), (None, b"no key"), (b"\x92\xa6offset", None)):
                    batch = bytearray(encode_batch([(key, value)]))
                    assign(batch, 0, base_offset=log.end_offset, leader_epoch=state.leader_epoch)
                    log.append_as_is(batch, leader_epoch=state.leader_epoch, now_ms=1_700_000_000_000)
                log.close()
    directory.close()


async def topics_of(data_dir: Path) -> list[Topic]:
    store = SqliteMetadataStore.open(SystemDisk(), data_dir / "metadata.db")
    image = Image(store, TopicConfig())
    await image.load()
    await store.close()
    return list(image)


def test_a_broker_starts_with_records_it_cannot_read_and_says_where_they_are(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    poison(data_dir)
    with caplog.at_level(logging.ERROR, "flymq"), running_broker(data_dir) as broker:
        assert committed(broker) == {"orders-0": 3}
        health = httpx.get(f"http://127.0.0.1:{broker.port}/health").json()
        assert health["status"] == "degraded"
        assert any("__offsets-0: 3 records are unreadable and were skipped" in each for each in health["problems"])
        metrics = httpx.get(f"http://127.0.0.1:{broker.port}/metrics").text
        assert "\nflymq_internal_records_unreadable 0\n" not in metrics
    assert "flymq repair internal-topics --data-dir" in caplog.text
    lines = (data_dir / "set-aside" / "__offsets-0.jsonl").read_text().splitlines()
    assert [base64.b64decode(json.loads(line)["value"] or "") for line in lines] == [b"y", b"no key", b""]


def test_repair_removes_what_cannot_be_read_and_keeps_the_groups(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poison(data_dir)
    command = ["repair", "internal-topics", "--data-dir", str(data_dir)]
    assert run(app, [*command, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert shown.out.split()[:3] == ["PARTITION", "OFFSET", "REASON"]
    assert "__offsets-0" in shown.out
    assert "Would remove" in shown.err
    assert run(app, command) == 0
    assert "Removed" in capsys.readouterr().err
    assert run(app, command) == 0
    assert "Nothing to repair" in capsys.readouterr().err
    with running_broker(data_dir) as broker:
        assert committed(broker) == {"orders-0": 3}
        assert httpx.get(f"http://127.0.0.1:{broker.port}/health").json()["status"] == "ok"


def test_repair_refuses_a_directory_in_use_and_one_without_a_broker(
    broker: TestBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, ["repair", "internal-topics", "--data-dir", str(broker.data_dir)]) == 1
    assert "in use by process" in capsys.readouterr().err
    assert run(app, ["repair", "internal-topics", "--data-dir", str(tmp_path / "nothing")]) == 1
    assert "not the data directory of a broker" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
