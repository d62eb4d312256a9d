"""A whole broker into a folder and back, in a real session."""

import json
import shutil

import pytest

from flymq.cli.app import app
from flymq.cli.exit_codes import run
from flymq.client.sync.client import FlyMQClient
from flymq.model.errors import BackupDamaged, BackupExists, BackupNotFound, NotInArchive, TopicExists
from flymq.spark.backup.check import check_backup
from flymq.spark.backup.contents import Extent, list_backups, read_backup
from flymq.spark.backup.create import create_backup
from flymq.spark.backup.restore import restore_backup
from flymq.spark.jobs.connection import Connection
from flymq.testing import running_broker

WEEK_MS = 7 * 86_400_000


@pytest.fixture(scope="module")
def full_broker():
    """A broker with topics of all kinds and two groups."""
    with running_broker() as broker, FlyMQClient(broker.address) as client:
        client.admin.create_topic("orders", 3, settings={"retention.ms": WEEK_MS, "segment.bytes": 1 << 20})
        client.admin.create_topic("users", 1, settings={"cleanup.policy": "compact"})
        client.admin.create_topic("unused", 2, settings={"max.message.bytes": 5000})
        for number in range(300):
            headers = [("trace", b"\x00\xff")] if number % 2 else []
            client.produce("orders", b"order %d" % number, key=b"k%d" % (number % 7), headers=headers)
        client.produce("users", None, key=b"gone")
        client.flush()
        client.admin.reset_offsets("billing", "orders", {0: 5, 1: 7, 2: 0})
        client.admin.reset_offsets("billing", "unused", {0: 0})
        client.admin.reset_offsets("late", "users", {0: 1})
        yield broker


@pytest.fixture(scope="module")
def backup(spark, full_broker, tmp_path_factory):
    """A finished backup; who damages it uses a copy."""
    root = tmp_path_factory.mktemp("backups") / "monday"
    create_backup(spark, root, Connection(server=full_broker.address))
    return root


def everything(address):
    """What a broker holds: topics, settings, records, groups."""
    with FlyMQClient(address) as client:
        topics = {info.name: client.admin.describe_topic(info.name) for info in client.admin.list_topics()}
        return {
            "settings": {name: (len(topic.partitions), dict(topic.settings)) for name, topic in topics.items()},
            "records": {
                (name, part.partition): [
                    (record.offset, record.key, record.value, record.timestamp, tuple(record.headers))
                    for record in client.fetch(name, part.partition)
                ]
                for name, topic in topics.items()
                for part in topic.partitions
            },
            "groups": {
                info.name: {
                    (at.topic, at.partition): at.offset
                    for at in client.admin.describe_group(info.name).positions
                    if at.offset >= 0
                }
                for info in client.admin.list_groups()
                if not info.name.startswith("flymq-pipeline-")
            },
        }


def test_a_backup_restored_into_an_empty_broker_gives_the_same_broker(spark, full_broker, backup):
    with running_broker() as empty:
        notes = restore_backup(spark, backup, Connection(server=empty.address))
        assert notes == []
        assert everything(empty.address) == everything(full_broker.address)


def test_a_backup_says_what_it_holds(backup):
    held = read_backup(backup)
    assert sorted(held.topics) == ["orders", "unused", "users"]
    assert held.rows == 301
    assert held.partitions["users"] == {0: Extent(0, 1, 1)}
    assert held.groups["billing"]["orders"] == {0: 5, 1: 7, 2: 0}


def test_some_topics_can_be_restored_alone_with_their_groups(spark, backup):
    with running_broker() as empty:
        restore_backup(spark, backup, Connection(server=empty.address), ["users"])
        restored = everything(empty.address)
    assert {topic for topic, _ in restored["records"]} == {"users"}
    assert restored["groups"] == {"late": {("users", 0): 1}}


def test_a_topic_that_is_there_is_not_touched_unless_asked(spark, backup):
    with running_broker() as busy, FlyMQClient(busy.address) as client:
        client.create_topic("users", 1)
        client.produce("users", b"newer")
        client.flush()
        with pytest.raises(TopicExists, match="users already exists"):
            restore_backup(spark, backup, Connection(server=busy.address), ["unused", "users"])
        assert client.list_topics() == ["users"]
        assert [record.value for record in client.fetch("users")] == [b"newer"]
        restore_backup(spark, backup, Connection(server=busy.address), ["users"], replace=True)
        assert [(record.key, record.value) for record in client.fetch("users")] == [(b"gone", None)]


def test_a_whole_backup_is_found_whole(backup):
    seen = check_backup(backup)
    assert (seen.is_whole, seen.rows) == (True, 301)


@pytest.fixture
def copy(backup, tmp_path):
    return shutil.copytree(backup, tmp_path / "copy")


def test_a_flipped_bit_is_found_and_nothing_is_restored(spark, copy):
    file = max(copy.glob("data/**/*.parquet"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert not check_backup(copy).is_whole
    with running_broker() as empty:
        with pytest.raises(BackupDamaged):
            restore_backup(spark, copy, Connection(server=empty.address))
        with FlyMQClient(empty.address) as client:
            assert client.list_topics() == []


def test_a_manifest_that_is_gone_is_missed(copy):
    next(copy.glob("manifests/*.json")).unlink()
    seen = check_backup(copy)
    assert any("found nothing, but backup.json lists" in problem for problem in seen.problems)


def test_an_altered_list_is_refused(copy):
    file = copy / "backup.json"
    file.write_text(file.read_text().replace('"rows": 1\n', '"rows": 2\n', 1))
    with pytest.raises(BackupDamaged, match="checksum"):
        read_backup(copy)


def test_a_backup_that_was_cut_short_is_listed_as_such_and_not_restored(spark, copy):
    (copy / "backup.json").unlink()
    assert list_backups(copy.parent) == [("copy", None)]
    with pytest.raises(BackupNotFound):
        restore_backup(spark, copy, Connection())


def test_a_backup_is_never_written_over(spark, backup):
    with pytest.raises(BackupExists):
        create_backup(spark, backup, Connection())


def test_a_topic_that_is_not_in_the_backup_is_told_with_those_that_are(spark, backup):
    with pytest.raises(NotInArchive) as failure:
        restore_backup(spark, backup, Connection(), ["order"])
    assert failure.value.hint == "It contains orders, unused, users."


def test_an_empty_broker_has_a_backup_too(spark, tmp_path):
    with running_broker() as empty:
        made = create_backup(spark, tmp_path / "nothing", Connection(server=empty.address))
    assert (made.topics, made.rows) == ({}, 0)
    assert check_backup(tmp_path / "nothing").is_whole


def test_the_command_line_lists_verifies_and_plans_without_spark(backup, copy, capsys):
    assert run(app, ["backup", "list", str(backup.parent), "-o", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["name"] == "monday" and listed["topics"] == {"orders": 300, "unused": 0, "users": 1}
    assert run(app, ["backup", "verify", str(backup)]) == 0
    assert "monday is complete" in capsys.readouterr().err
    next(copy.glob("data/**/*.parquet")).write_bytes(b"cut")
    assert run(app, ["backup", "verify", str(copy)]) == 1
    with running_broker() as empty:
        arguments = ["restore", str(backup), "--dry-run", "--server", empty.address]
        assert run(app, arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["users", "1", "1"]
