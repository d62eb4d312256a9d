"""Jobs from topics to topics and snapshots, each over what is there, then over what has come since."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.jobs.conftest import RunJob
from tests.spark.jobs.records import fill, objects_of, records_of, values_of

from flymq import FlyMQClient, generate_key
from flymq.model.errors import InvalidPipeline, PipelineDiffers, TopicNotFound
from flymq.spark.error_messages import failure_of
from flymq.spark.jobs.aggregate import AggregateJob
from flymq.spark.jobs.compact import CompactJob
from flymq.spark.jobs.connection import Connection
from flymq.spark.jobs.execution.pipeline_state import Pipelines
from flymq.spark.jobs.mirror import MirrorJob
from flymq.spark.jobs.replay import ReplayJob
from flymq.spark.jobs.transform import TransformJob
from flymq.testing import TestBroker, running_broker

MINUTE_MS = 60_000
NOON_MS = (int(time.time()) // 3600 - 24) * 3_600_000
"""A full hour, yesterday: topics take no times of the future, and keep none that are long past."""


def put(client: FlyMQClient, topic: str, user: str, amount: float, *, at_ms: int = NOON_MS) -> None:
    client.produce(topic, json.dumps({"user": user, "amount": amount}), key=user, timestamp=at_ms)


# --- transform ------------------------------------------------------------------------------------------------------


def test_sql_turns_one_topic_into_another(client: FlyMQClient, topic: str, run_job: RunJob) -> None:
    put(client, topic, "ann", 5)
    put(client, topic, "bob", 50)
    job = TransformJob(
        topic=topic,
        to=f"{topic}-large",
        sql=f"SELECT key, upper(user) AS name, amount * 2 AS twice FROM `{topic}` WHERE amount > 10 AND key <> 'zoe'",
        schema="user STRING, amount DOUBLE",
    )
    run_job(job)
    put(client, topic, "eve", 70)
    put(client, topic, "zoe", 70)
    run_job(job)
    assert objects_of(client, f"{topic}-large") == [{"name": "BOB", "twice": 100.0}, {"name": "EVE", "twice": 140.0}]
    keys = {record.key for part in records_of(client, f"{topic}-large") for record in part}
    assert keys == {b"bob", b"eve"}


def test_what_sql_does_not_touch_goes_through_as_it_is(client: FlyMQClient, topic: str, run_job: RunJob) -> None:
    fill(client, topic, 60)
    run_job(TransformJob(topic=topic, to=f"{topic}-same", sql=f"SELECT * FROM `{topic}` WHERE partition = 1"))
    [copied] = [part for part in records_of(client, f"{topic}-same") if part]
    assert [record[:3] for record in copied] == [record[:3] for record in records_of(client, topic)[1]]


def test_what_comes_from_an_encrypted_topic_is_written_encrypted(
    client: FlyMQClient, broker: TestBroker, topic: str, run_job: RunJob, tmp_path: Path
) -> None:
    key, target = generate_key(), f"{topic}-sealed"
    (tmp_path / "key").write_text(key)
    with FlyMQClient(broker.address, encryption_key=key) as trusted:
        put(trusted, topic, "ann", 5)
        sql = f"SELECT user, amount FROM `{topic}`"
        schema, key_file = "user STRING, amount DOUBLE", str(tmp_path / "key")
        run_job(TransformJob(topic=topic, to=target, sql=sql, schema=schema, encryption_key_file=key_file))
        assert objects_of(trusted, target) == [{"user": "ann", "amount": 5.0}]
    assert b"ann" not in (values_of(client, target)[0] or b"")


@pytest.mark.parametrize(
    ("sql", "schema", "said"),
    [
        ("SELECT nothing FROM `{}`", None, "`nothing` cannot be resolved"),
        ("SELEC value FROM `{}`", None, "Syntax error"),
        ("SELECT key FROM `{}`", None, "the result has only key"),
        ("SELECT value FROM `{}`", "user STRANG", "the schema 'user STRANG' is not valid"),
    ],
)
def test_sql_that_cannot_be_used_is_refused_with_what_there_is(
    topic: str, run_job: RunJob, sql: str, schema: str | None, said: str
) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        run_job(TransformJob(topic=topic, to="x", sql=sql.format(topic), schema=schema))
    assert said in caught.value.message
    assert caught.value.hint


def test_a_pipeline_that_has_begun_is_not_turned_into_another_one(
    client: FlyMQClient, topic: str, run_job: RunJob
) -> None:
    put(client, topic, "ann", 5)
    run_job(TransformJob(topic=topic, to=f"{topic}-a", sql=f"SELECT value FROM `{topic}`"))
    with pytest.raises(PipelineDiffers):
        run_job(TransformJob(topic=topic, to=f"{topic}-a", sql=f"SELECT key, value FROM `{topic}`"))


# --- aggregate ------------------------------------------------------------------------------------------------------


def windows(client: FlyMQClient, topic: str) -> None:
    """Two windows of noon's minutes, and one record far behind them that closes both."""
    for user, amount, minute in (("ann", 1, 0), ("ann", 2, 0), ("bob", 4, 0), ("ann", 8, 1)):
        put(client, topic, user, amount, at_ms=NOON_MS + minute * MINUTE_MS + 30_000)
    put(client, topic, "end", 0, at_ms=NOON_MS + 60 * MINUTE_MS)


def aggregate_of(topic: str, **fields: str) -> AggregateJob:
    return AggregateJob(topic=topic, sums={"total": "amount"}, schema="user STRING, amount DOUBLE", **fields)  # type: ignore[arg-type]


def test_windows_are_counted_and_summed_by_key_when_they_are_over(
    client: FlyMQClient, topic: str, run_job: RunJob
) -> None:
    windows(client, topic)
    run_job(aggregate_of(topic, to=f"{topic}-sums"))
    put(client, topic, "late", 1, at_ms=NOON_MS)  # its window is over
    put(client, topic, "end", 0, at_ms=NOON_MS + 120 * MINUTE_MS)
    run_job(aggregate_of(topic, to=f"{topic}-sums"))
    found = [(row["key"], row["count"], row["total"]) for row in objects_of(client, f"{topic}-sums")]
    assert sorted(found) == [("ann", 1, 8.0), ("ann", 2, 3.0), ("bob", 1, 4.0), ("end", 1, 0.0)]


def test_windows_go_to_parquet_each_once(
    client: FlyMQClient, topic: str, run_job: RunJob, tmp_path: Path, spark: SparkSession
) -> None:
    windows(client, topic)
    job = aggregate_of(topic, to_parquet=str(tmp_path / "windows"), key="user")
    run_job(job)
    run_job(job)
    rows = spark.read.parquet(str(tmp_path / "windows")).collect()
    assert sorted((row.key, row["count"], row.total) for row in rows) == [
        ("ann", 1, 8.0),
        ("ann", 2, 3.0),
        ("bob", 1, 4.0),
    ]


def test_an_aggregate_without_a_place_to_go_is_refused(topic: str, run_job: RunJob) -> None:
    with pytest.raises(InvalidPipeline, match="a topic or Parquet"):
        run_job(aggregate_of(topic))


# --- compact --------------------------------------------------------------------------------------------------------


def test_a_snapshot_has_the_latest_value_of_every_key(
    client: FlyMQClient, topic: str, run_job: RunJob, tmp_path: Path, spark: SparkSession, pipelines: Pipelines
) -> None:
    def snapshot() -> dict[bytes, bytes]:
        return {
            bytes(row.key): bytes(row.value) for row in spark.read.parquet(str(tmp_path / "keys/current")).collect()
        }

    job = CompactJob(topic=topic, to=str(tmp_path / "keys"))
    for key, value in (("a", "1"), ("b", "1"), ("a", "2"), (None, "nobody's")):
        client.produce(topic, value, key=key)
    run_job(job)
    assert snapshot() == {b"a": b"2", b"b": b"1"}
    client.produce(topic, None, key="b")
    client.produce(topic, "3", key="c")
    run_job(job)
    assert snapshot() == {b"a": b"2", b"c": b"3"}
    pipelines.remove(job.default_name)  # begins anew, and merges what it knows already
    run_job(job)
    assert snapshot() == {b"a": b"2", b"c": b"3"}
    assert len(list((tmp_path / "keys/snapshots").iterdir())) == 2


# --- replay ---------------------------------------------------------------------------------------------------------


def test_records_of_a_time_are_replayed_once(client: FlyMQClient, topic: str, run_job: RunJob) -> None:
    started_ms = fill(client, topic, 90)
    job = ReplayJob(topic=topic, to=f"{topic}-again", since_ms=started_ms + 30, until_ms=started_ms + 60)
    run_job(job)
    run_job(job)
    wanted = [r for part in records_of(client, topic) for r in part if started_ms + 30 <= r.timestamp < started_ms + 60]
    again = [record for part in records_of(client, f"{topic}-again") for record in part]
    assert sorted(again, key=lambda r: r.timestamp) == sorted(wanted, key=lambda r: r.timestamp)


def test_dead_letters_go_back_where_they_come_from(client: FlyMQClient, topic: str, run_job: RunJob) -> None:
    letters = f"{topic}-dead"
    client.create_topic(letters, 1)
    client.produce(topic, b"good", key=b"k", headers=[("own", b"1")])
    consumer = client.consumer(topic, group=topic)

    def refuse(_record: object) -> None:
        consumer.stop()
        raise ValueError("no")

    consumer.process(refuse, retries=0, dead_letter_topic=letters)
    consumer.close()
    client.produce(letters, b"from elsewhere")  # nobody says where it belongs: it stays
    run_job(ReplayJob(topic=letters))
    found = [record[:3] for part in records_of(client, topic) for record in part]
    assert found == [(b"k", b"good", (("own", b"1"),))] * 2


def test_only_records_that_the_condition_takes_are_replayed(client: FlyMQClient, topic: str, run_job: RunJob) -> None:
    put(client, topic, "ann", 5)
    put(client, topic, "bob", 50)
    run_job(ReplayJob(topic=topic, to=f"{topic}-some", where="amount > 10", schema="amount DOUBLE"))
    assert [row["user"] for row in objects_of(client, f"{topic}-some")] == ["bob"]


# --- mirror ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["flymq", "kafka"])
def test_a_topic_of_another_cluster_is_mirrored_with_all_it_has(
    client: FlyMQClient, broker: TestBroker, run_job: RunJob, protocol: str
) -> None:
    with running_broker() as other, FlyMQClient(other.address) as there:
        topic = f"far-{protocol}"
        there.create_topic(topic, 3)
        fill(there, topic, 300)
        job = MirrorJob(topic=topic, source=Connection(server=other.address), protocol=protocol)  # type: ignore[arg-type]
        run_job(job)
        with there.transaction() as aborted:
            aborted.send(topic, b"never seen")
            aborted.abort()
        fill(there, topic, 60, first=300)
        run_job(job)
        assert records_of(client, topic) == records_of(there, topic)


@pytest.mark.parametrize("protocol", ["flymq", "kafka"])
def test_a_topic_that_the_other_cluster_does_not_have_is_named(
    broker: TestBroker, run_job: RunJob, protocol: str
) -> None:
    job = MirrorJob(topic="nowhere", source=Connection(server=broker.address), protocol=protocol)  # type: ignore[arg-type]
    with pytest.raises(Exception) as caught:
        run_job(job)
    error = failure_of(caught.value)
    assert isinstance(error, TopicNotFound)
    assert "nowhere" in error.message


def test_a_wrong_option_is_refused_with_what_it_takes(topic: str, run_job: RunJob) -> None:
    with pytest.raises(Exception) as caught:
        run_job(TransformJob(topic=topic, to="x", sql=f"SELECT value FROM `{topic}`", start="yesterday"))
    assert failure_of(caught.value).code == "INVALID_OPTION"
